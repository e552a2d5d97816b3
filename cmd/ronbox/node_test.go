package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/registry/rverify"
	"ronbox/httpapi/client"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
	"ronbox/store/lock"
)

// The main job on real input: applying eight states over a dev genesis creates versions 2 to 9.
func TestEightRealStates(t *testing.T) {
	t.Parallel()
	skipRaceOnly(t)
	b := newBox(t)
	b.start(t)
	files := states(t)
	var doc appliedStates
	must(t, &doc, b.args(append([]string{"registry", "apply", "--key", b.key, "--json"}, files...)...)...)
	if doc.Version != 9 || len(doc.Results) != 8 {
		t.Fatalf("apply gave %+v", doc)
	}
	for i, r := range doc.Results {
		if r.Version != uint64(i+2) || !r.Changed || r.File != files[i] || r.Put == 0 {
			t.Errorf("file %d: %+v", i, r)
		}
	}
	var head registryapi.Head
	must(t, &head, b.args("registry", "head", "--json")...)
	if head.Version != 9 || head.PayloadB3.String() != doc.PayloadB3 || head.Hash.String() != doc.Hash ||
		head.CommittedAt != doc.CommittedAt {
		t.Errorf("head is %+v, apply said %+v", head, doc)
	}
	var v registryapi.Version
	must(t, &v, b.args("registry", "get", "9", "--json")...)
	if len(v.Items) != 7633 {
		t.Errorf("version 9 holds %d descriptors, want 7633", len(v.Items))
	}
	var again appliedStates
	must(t, &again, b.args("registry", "apply", files[7], "--key", b.key, "--json")...)
	if again.Version != 9 || again.Results[0].Changed || again.Hash != doc.Hash {
		t.Errorf("applying the same state again gave %+v", again)
	}
	if r := must(
		t,
		nil,
		b.args("registry", "apply", files[7], "--key", b.key)...); !strings.Contains(
		r.stdout,
		"nothing differs from version 9",
	) {
		t.Errorf("a person is told %q", r.stdout)
	}
}

func TestSecondServeNamesTheFirst(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel() // the second start waits two seconds for the first node to stop
	b := newBox(t)
	first := b.start(t)
	second := b.launch(t)
	<-second.done
	if second.code() != cli.ExitLocked || !strings.Contains(second.stderr.String(), fmt.Sprint(first.cmd.Process.Pid)) {
		t.Errorf("exit %d, want 75 and process %d named:\n%s", second.code(), first.cmd.Process.Pid, second.stderr)
	}
	db := filepath.Join(b.dir, "ronbox.db")
	for _, verb := range [][]string{
		{"db", "info", db}, {"db", "verify", db}, {"registry", "verify", "--db", db, "--genesis", b.genesis},
	} {
		if r := ronbox(
			t,
			b.args(verb...)...); r.code != cli.ExitLocked ||
			!strings.Contains(r.stderr, fmt.Sprint(first.cmd.Process.Pid)) {
			t.Errorf("%v beside a node: exit %d, %s", verb, r.code, r.stderr)
		}
	}
	if code := first.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("the first ended with %d\n%s", code, first.stderr)
	}
}

// A second `init --start` in the directory of a running node fails; its message names the process
// and the next step. In another directory with the same port, the message names the node that has
// the port.
func TestSecondStartNamesTheFirst(t *testing.T) {
	b := newBox(t)
	first := b.start(t)
	pid := fmt.Sprintf("process %d", first.cmd.Process.Pid)
	again := ronbox(t, b.args("init", "--dev", "--start")...)
	if again.code != cli.ExitLocked || !strings.Contains(again.stderr, pid) ||
		!strings.Contains(again.stderr, "drain") {
		t.Errorf("the same directory: exit %d, %s", again.code, again.stderr)
	}
	other := filepath.Join(t.TempDir(), "d")
	var status nodeapi.Status
	must(t, &status, b.args("status", "--json")...)
	t.Setenv("RONBOX_SERVER__BIND", strings.TrimPrefix(status.URL, "http://"))
	r := ronbox(t, "--data-dir", other, "init", "--dev", "--start")
	if r.code != cli.ExitLocked || !strings.Contains(r.stderr, pid) ||
		!strings.Contains(r.stderr, "--data-dir "+b.dir+" drain") {
		t.Errorf("another directory: exit %d, %s", r.code, r.stderr)
	}
}

// A verb that follows `init --start` at once waits until the node serves. Without a starting
// process, a verb does not wait.
func TestVerbWaitsForAStart(t *testing.T) {
	for _, start := range [][]string{{"init", "--dev", "--start"}, {"serve"}} {
		b := newBox(t)
		p := b.prepare()
		p.cmd.Args = append(p.cmd.Args[:1], b.args(start...)...)
		if start[0] == "init" {
			if err := os.RemoveAll(b.dir); err != nil {
				t.Fatal(err)
			}
		}
		b.run(t, p)
		// wait until the process has locked a file in the directory
		key, file := filepath.Join(b.dir, "node.key"), filepath.Join(b.dir, "ronbox.db")
		for lock.Holder(key) == nil && lock.Holder(file) == nil {
			select {
			case <-p.done:
				t.Fatalf("%v ended with %d\n%s", start, p.code(), p.stderr)
			case <-time.After(time.Millisecond):
			}
		}
		if r := ronbox(t, b.args("wallet", "balance", "alice")...); r.code != cli.ExitDone {
			t.Errorf("%v, then a verb: exit %d, %s\n%s", start, r.code, r.stderr, p.stderr)
		}
		p.signal(t, syscall.SIGKILL)
		begun := time.Now()
		if r := ronbox(
			t,
			b.args("status")...); r.code != cli.ExitUnreachable ||
			time.Since(begun) >= client.StartWithin {
			t.Errorf("after a kill: exit %d in %s, %s", r.code, time.Since(begun), r.stderr)
		}
	}
}

// SIGTERM under load: requests in progress are answered, and the node stops in order.
func TestTermUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	p := b.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var reads, torn atomic.Int64
	var readers, writer sync.WaitGroup
	begun := make(chan struct{})
	var once sync.Once
	for range 8 {
		c := b.client(t)
		readers.Go(func() {
			for { // until the node has stopped: a read that the test interrupts would count as unanswered
				_, err := c.Head(t.Context())
				if errors.Is(err, client.ErrUnknown) {
					torn.Add(1)
					t.Logf("%v", err)
				}
				if err != nil {
					return
				}
				if reads.Add(1) > 100 {
					once.Do(func() { close(begun) })
				}
			}
		})
	}
	writer.Go(func() {
		ronboxIn(t, ctx, "", b.args(append([]string{"registry", "apply", "-q", "--key", b.key}, states(t)...)...)...)
	})
	<-begun
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
	readers.Wait()
	cancel()
	writer.Wait()
	if torn.Load() > 0 {
		t.Errorf("%d of %d requests were left without an answer", torn.Load(), reads.Load())
	}
	b.checkLog(t)
}

func TestDrainVerbStopsTheNode(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	p := b.start(t)
	var doc nodeapi.DrainLine
	must(t, &doc, b.args("drain", "--reason", "test", "--json")...)
	<-p.done
	if !doc.Draining || doc.Finished == 0 || doc.Aborted != 0 || p.code() != cli.ExitDone {
		t.Errorf("drain said %+v, serve ended with %d\n%s", doc, p.code(), p.stderr)
	}
	if r := ronbox(
		t,
		b.args("status")...); r.code != cli.ExitUnreachable ||
		!strings.Contains(r.stderr, "ronbox serve") {
		t.Errorf("status of no node: exit %d, %s", r.code, r.stderr)
	}
}

func TestURLAndToken(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.start(t)
	var s nodeapi.Status
	must(t, &s, b.args("status", "--json")...)
	none := filepath.Join(t.TempDir(), "t")
	narrow := filepath.Join(t.TempDir(), "n")
	must(t, nil, b.args("token", "mint", "--scope", "node.metrics", "--out", narrow)...)
	if err := os.WriteFile(none, []byte("bm90IGEgdG9rZW4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	admin := filepath.Join(b.dir, "admin.token")
	apply := []string{"registry", "apply", states(t)[0], "--key", b.key}
	for _, tt := range []struct {
		doc  string
		args []string
		want int
	}{
		{"reads need no token", []string{"--url", s.URL, "registry", "head"}, cli.ExitDone},
		{"writes do", append([]string{"--url", s.URL}, apply...), cli.ExitDenied},
		{"not any", append([]string{"--url", s.URL, "--token-file", none}, apply...), cli.ExitDenied},
		{"one with the scope", append([]string{"--url", s.URL, "--token-file", narrow}, apply...), cli.ExitDenied},
		{"the dev token may", append([]string{"--url", s.URL, "--token-file", admin}, apply...), cli.ExitDone},
		{"nobody there", []string{"--url", "http://127.0.0.1:1", "registry", "head"}, cli.ExitUnreachable},
		{"both ways", []string{"--url", s.URL, "--socket", "x", "registry", "head"}, cli.ExitUsage},
	} {
		if r := ronbox(t, tt.args...); r.code != tt.want {
			t.Errorf("%s: exit %d, want %d\n%s", tt.doc, r.code, tt.want, r.stderr)
		}
	}
}

// One command creates a node and serves it, the same command serves it again, and the output
// suggests commands to try.
func TestInitStart(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	made := newBox(t)
	b := &box{dir: made.dir + "2", env: made.env}
	t.Cleanup(func() { _ = os.RemoveAll(b.dir) })
	for _, life := range []string{"made", "is a node already"} {
		p := &process{
			cmd:    exec.Command(binary, b.args("init", "--dev", "--start")...),
			stderr: &bytes.Buffer{},
			done:   make(chan struct{}),
		}
		began := time.Now()
		b.run(t, p)
		until(t, "the node is ready", func() bool {
			r, err := b.client(t).Ready(t.Context(), "", "")
			return err == nil && r.Ready
		})
		t.Logf("%s: ready after %s", life, time.Since(began).Round(time.Millisecond))
		if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
			t.Errorf("exit %d\n%s", code, p.stderr)
		}
		for _, want := range []string{life, "URL ", "admin.token", b.dir + " console", "wallet transfer alice bob 100\n",
			"dev-signer.key"} {
			if !strings.Contains(p.stderr.String(), want) {
				t.Errorf("nobody is told %q:\n%s", want, p.stderr)
			}
		}
	}
}

func TestTopologyIsPrintedWithoutANode(t *testing.T) {
	skipRaceOnly(t)
	var doc struct {
		Channels []map[string]any `json:"channels"`
		Tasks    []map[string]any `json:"tasks"`
		Others   []struct {
			Tasks []map[string]any `json:"tasks"`
		} `json:"others"`
	}
	none := filepath.Join(t.TempDir(), "none")
	must(t, &doc, "--data-dir", none, "debug", "topology", "--json")
	for _, c := range doc.Channels {
		for _, member := range []string{"service", "name", "kind", "cap", "policy", "producers", "consumers"} {
			if _, ok := c[member]; !ok {
				t.Errorf("channel %v lacks %s", c, member)
			}
		}
	}
	if len(doc.Channels) < 10 || len(doc.Tasks) < 8 || len(doc.Others) != 2 ||
		len(doc.Others[1].Tasks) <= len(doc.Tasks) {
		t.Errorf("%d channels and %d tasks: some are missing", len(doc.Channels), len(doc.Tasks))
	}
	if r := must(t, nil, "--data-dir", none, "debug", "topology", "--mermaid"); !strings.Contains(
		r.stdout,
		"flowchart",
	) {
		t.Errorf("no picture: %s", r.stdout)
	}
	tables := must(t, nil, "--data-dir", none, "debug", "topology").stdout
	for _, row := range []string{"| `proposals_tx` | queue | 512 |", "| `viewer` | 1 |", "| `acceptor` | 32 |"} {
		if !strings.Contains(tables, row) {
			t.Errorf("no %s: %s", row, tables)
		}
	}
}

// Ctrl-C ends a stream with exit code 0 and no message.
func TestInterruptedStreamEndsWell(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.start(t)
	for _, extra := range [][]string{{}, {"--json"}} {
		cmd := exec.Command(binary, b.args(append([]string{"registry", "stream"}, extra...)...)...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var errs strings.Builder
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(lines)
		if err := cmd.Wait(); err != nil || len(rest) > 0 || errs.Len() > 0 {
			t.Errorf("stream %v: %v, then printed %q and %q", extra, err, rest, errs.String())
		}
	}
}

// checkLog verifies the log of a stopped node.
func (b *box) checkLog(t testing.TB) rverify.Report {
	t.Helper()
	r := spawn(t, "registry", "verify", "--db", filepath.Join(b.dir, "ronbox.db"), "--genesis", b.genesis, "--json")
	var doc rverify.Report
	if decode(t, r.stdout, &doc); r.code != cli.ExitDone || !doc.OK {
		t.Fatalf("verify: exit %d, %+v\n%s", r.code, doc, r.stderr)
	}
	return doc
}

func TestServeAnswersProbesOverTCP(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	b.start(t)
	var s nodeapi.Status
	must(t, &s, b.args("status", "--json")...)
	resp, err := http.Get(s.URL + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("healthz: %s", resp.Status)
	}
}

// A node continues after the reader of its log exits and after its terminal closes.
func TestLostReaderAndTerminalDoNotEndTheNode(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	b.env = append(b.env, "RONBOX_LOG__LEVEL=debug")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := b.prepare()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	b.run(t, p)
	b.awaitReady(t, p)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for range 3 { // each request writes lines to a log without a reader
		if _, err := b.client(t).Head(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if code := p.signal(t, syscall.SIGTERM); code != cli.ExitDone {
		t.Errorf("exit %d, want 0", code)
	}
}

type checkup struct {
	OK       bool           `json:"ok"`
	Findings []host.Finding `json:"findings"`
}

// doctor checks everything that the node needs. Its exit code is that of the worst finding.
func TestDoctor(t *testing.T) {
	skipRaceOnly(t)
	t.Parallel()
	b := newBox(t)
	for _, running := range []bool{false, true} {
		if running {
			b.start(t)
		}
		r := ronbox(t, b.args("doctor", "--json")...)
		var doc checkup
		decode(t, r.stdout, &doc)
		seen := map[string]host.Finding{}
		worst := host.OK
		for _, f := range doc.Findings {
			seen[f.Check] = f
			if (f.Advice == "") != (f.Level == host.OK) {
				t.Errorf("%s is %s, its advice %q", f.Check, f.Level, f.Advice)
			}
			if f.Level == host.Bad {
				worst = host.Bad
			}
		}
		if bad := worst == host.Bad; doc.OK == bad || (r.code == cli.ExitBad) != bad ||
			(r.code == cli.ExitDone) == bad {
			t.Errorf("the worst is %s, ok is %t, exit %d", worst, doc.OK, r.code)
		}
		for _, check := range []string{"config", "node", "port", "data_dir", "file_system", "disk_space", "disk_sync",
			"kernel", "clock", "swap", "memory", "open_files", "cpu", "somaxconn"} {
			if seen[check].Seen == "" {
				t.Errorf("nothing is said of %s", check)
			}
		}
		if got := strings.HasPrefix(seen["node"].Seen, "runs"); got != running {
			t.Errorf("a node runs: %t; doctor says %q", running, seen["node"].Seen)
		}
		if got := seen["growth"].Seen != "" && seen["tasks"].Seen != ""; got != running {
			t.Errorf("a node runs: %t; its own findings are shown: %t", running, got)
		}
		human := ronbox(t, b.args("doctor")...)
		if strings.Count(human.stdout, "\n") < len(doc.Findings) {
			t.Errorf("a person is shown less:\n%s", human.stdout)
		}
	}
}

// An invalid configuration is a finding, and doctor still runs the other checks.
func TestDoctorOfABadConfiguration(t *testing.T) {
	t.Setenv("RONBOX_SERVER__BIND", "nonsense")
	var doc checkup
	r := ronbox(t, "--data-dir", filepath.Join(t.TempDir(), "none"), "doctor", "--json")
	if decode(t, r.stdout,
		&doc); r.code != cli.ExitBad || len(doc.Findings) < 10 || doc.Findings[0].Level != host.Bad ||
		!strings.Contains(doc.Findings[0].Seen, "server.bind") {
		t.Errorf("exit %d, %+v", r.code, doc)
	}
}

// A verb does not wait for a node that is stopping. Such a node has closed its sockets and still
// closes its database.
func TestVerbMeetsAStop(t *testing.T) {
	b := newBox(t)
	stopping, err := os.Open(filepath.Join(b.dir, config.StoppingName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stopping.Close() })
	if err := unix.Flock(int(stopping.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	r := ronbox(t, b.args("status")...)
	if r.code != cli.ExitUnreachable || !strings.Contains(r.stderr, "the node is stopping (process ") {
		t.Errorf("exit %d, %s", r.code, r.stderr)
	}
}

// The command that init prints is one of a shell, whatever the name of the directory.
func TestPrintedCommandRuns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's a b")
	out, err := exec.Command(binary, "--data-dir", dir, "init").CombinedOutput()
	_, next, found := strings.Cut(string(out), "\nnext ")
	prefix, serve := strings.CutSuffix(strings.TrimSpace(next), " serve")
	if err != nil || !found || !serve {
		t.Fatalf("init: %v\n%s", err, out)
	}
	if out, err := exec.Command("sh", "-c", prefix+" config check").CombinedOutput(); err != nil {
		t.Errorf("%s config check: %v\n%s", prefix, err, out)
	}
}
