package main

import (
	"bufio"
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/cmd/ronbox/cli"
)

// demoDoc is the --json output of demo.
type demoDoc struct {
	DataDir string         `json:"data_dir"`
	URL     string         `json:"url"`
	Map     string         `json:"map"`
	Console string         `json:"console"`
	Receipt jsontext.Value `json:"receipt"`
	Kept    bool           `json:"kept"`
	Steps   []struct {
		Name  string   `json:"name"`
		Shown []string `json:"shown"`
	} `json:"steps"`
}

// runDemo runs the demonstration in its own process, with a folder for temporary files that must be
// empty afterwards.
func runDemo(t *testing.T, args ...string) result {
	t.Helper()
	dir, err := os.MkdirTemp("", "rb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var out, errs bytes.Buffer
	p := &process{stderr: &errs, done: make(chan struct{})}
	p.cmd = (&box{dir: dir}).prepare().cmd
	p.cmd.Args = append([]string{binary, "demo"}, args...)
	p.cmd.Stdout, p.cmd.Stderr = &out, &errs
	p.cmd.Env = append(slices.Clone(os.Environ()),
		"TMPDIR="+dir, "RONBOX_URL=http://127.0.0.1:1", "RONBOX_LOG__LEVEL=debug")
	p.begin(t, &syscall.SysProcAttr{})
	p.await(t, "demo")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("demo has left %v: %v", left, err)
	}
	return result{p.code(), out.String(), errs.String()}
}

// The demonstration shows its six steps in lines that fit into a terminal, and removes everything.
func TestDemo(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	r := runDemo(t)
	if r.code != cli.ExitDone || r.stderr != "" {
		t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	for _, want := range []string{"1 a node", "2 a payment", "3 kill -9", "4 the same again", "5 its proof", "6 a map",
		"nothing was paid twice", "demo --keep"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("it does not show %q:\n%s", want, r.stdout)
		}
	}
	for line := range strings.Lines(r.stdout) {
		if n := len([]rune(line)); n > 81 {
			t.Errorf("a line of %d columns: %s", n-1, line)
		}
	}
}

// With --keep the node serves the map and the console until a signal, and its files stay.
func TestDemoKeeps(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	dir, err := os.MkdirTemp("", "rb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	p := (&box{dir: dir}).prepare()
	p.cmd.Args = []string{binary, "demo", "--keep", "--json", "--data-dir", filepath.Join(dir, "d")}
	p.cmd.Stdout, p.cmd.Stderr = in, p.stderr
	p.begin(t, &syscall.SysProcAttr{})
	_ = in.Close()
	var made demoDoc
	if err := json.UnmarshalDecode(jsontext.NewDecoder(out), &made); err != nil {
		t.Fatalf("%v\n%s", err, p.stderr)
	}
	if !made.Kept || len(made.Steps) != 6 {
		t.Errorf("%+v", made)
	}
	for _, url := range []string{made.Map, made.Console} {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", url, resp.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	must(t, nil, "ledger", "verify-proof", filepath.Join(made.DataDir, "proof.json"), "--receipt",
		filepath.Join(made.DataDir, "receipt.json"))
	if code := p.signal(t, os.Interrupt); code != cli.ExitDone {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
	must(t, nil, "db", "verify", filepath.Join(made.DataDir, "ronbox.db"))
}

// A demonstration that is ended midway, as by a terminal that closes, leaves nothing behind.
func TestDemoEndedMidway(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	dir, err := os.MkdirTemp("", "rb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p := (&box{dir: dir}).prepare()
		p.cmd.Args = []string{binary, "demo"}
		p.cmd.Stdout, p.cmd.Stderr = in, p.stderr
		p.cmd.Env = append(slices.Clone(os.Environ()), "TMPDIR="+dir)
		p.begin(t, &syscall.SysProcAttr{})
		_ = in.Close()
		seen := bufio.NewScanner(out)
		for seen.Scan() && !strings.Contains(seen.Text(), "1 a node") {
		}
		if code := p.signal(t, sig); code != cli.ExitInterrupted {
			t.Errorf("%v: exit %d\n%s", sig, code, p.stderr)
		}
		_ = out.Close()
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v: demo has left %v: %v", sig, left, err)
		}
	}
}

// A step that fails is named, and nothing is left behind.
func TestDemoNamesTheFailedStep(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	dir := t.TempDir()
	if r := runDemo(t, "--data-dir", dir, "--json"); r.code != cli.ExitDone {
		t.Errorf("in an empty folder: exit %d\n%s", r.code, r.stdout+r.stderr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("an empty folder keeps %v: %v", left, err)
	}
	long := filepath.Join(dir, strings.Repeat("a", 120)) // too long for the path of a socket
	r := runDemo(t, "--data-dir", long)
	if r.code != cli.ExitFailed || !strings.Contains(r.stderr, `the step "a node" failed`) {
		t.Errorf("exit %d\n%s", r.code, r.stdout+r.stderr)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("it has left %v", left)
	}
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := runDemo(t, "--data-dir", dir); r.code != cli.ExitFailed || !strings.Contains(r.stderr, "is not empty") {
		t.Errorf("in a folder with a file: exit %d\n%s", r.code, r.stdout+r.stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "mine")); err != nil {
		t.Error(err)
	}
}
