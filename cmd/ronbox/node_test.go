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

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// The main job on real input: eight states over a dev genesis are versions 2 to 9.
func TestEightRealStates(t *testing.T) {
	b := newBox(t)
	b.start(t)
	files := states(t)
	var doc appliedDoc
	must(t, &doc, b.args(append([]string{"registry", "apply", "--key", b.key, "--json"}, files...)...)...)
	if doc.Version != 9 || len(doc.Results) != 8 {
		t.Fatalf("apply gave %+v", doc)
	}
	for i, r := range doc.Results {
		if r.Version != uint64(i+2) || !r.Changed || r.File != files[i] || r.Put == 0 {
			t.Errorf("file %d: %+v", i, r)
		}
	}
	var head wire.Head
	must(t, &head, b.args("registry", "head", "--json")...)
	if head.Version != 9 || head.PayloadB3 != doc.PayloadB3 || head.Hash != doc.Hash || head.CommittedAt != doc.CommittedAt {
		t.Errorf("head is %+v, apply said %+v", head, doc)
	}
	var v wire.Version
	must(t, &v, b.args("registry", "get", "9", "--json")...)
	if len(v.Items) != 7633 {
		t.Errorf("version 9 holds %d descriptors, want 7633", len(v.Items))
	}
	var again appliedDoc
	must(t, &again, b.args("registry", "apply", files[7], "--key", b.key, "--json")...)
	if again.Version != 9 || again.Results[0].Changed || again.Hash != doc.Hash {
		t.Errorf("applying the same state again gave %+v", again)
	}
	if r := must(t, nil, b.args("registry", "apply", files[7], "--key", b.key)...); !strings.Contains(r.stdout, "nothing differs from version 9") {
		t.Errorf("a person is told %q", r.stdout)
	}
}

func TestSecondServeNamesTheFirst(t *testing.T) {
	t.Parallel() // the second waits two seconds for the first to go
	b := newBox(t)
	first := b.start(t)
	second := b.launch(t)
	<-second.done
	if second.code() != exitLocked || !strings.Contains(second.stderr.String(), fmt.Sprint(first.cmd.Process.Pid)) {
		t.Errorf("exit %d, want 75 and process %d named:\n%s", second.code(), first.cmd.Process.Pid, second.stderr)
	}
	db := filepath.Join(b.dir, "ronbox.db")
	for _, verb := range [][]string{
		{"db", "info", db}, {"db", "verify", db}, {"registry", "verify", "--db", db, "--genesis", b.genesis},
	} {
		if r := cli(t, b.args(verb...)...); r.code != exitLocked || !strings.Contains(r.stderr, fmt.Sprint(first.cmd.Process.Pid)) {
			t.Errorf("%v beside a node: exit %d, %s", verb, r.code, r.stderr)
		}
	}
	if code := first.signal(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("the first ended with %d\n%s", code, first.stderr)
	}
}

// SIGTERM under load: what was begun is answered, and the node leaves in order.
func TestTermUnderLoad(t *testing.T) {
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
			for { // until the node is gone: a read that the test cut short would look like one that was not answered
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
		cliIn(t, ctx, "", b.args(append([]string{"registry", "apply", "-q", "--key", b.key}, states(t)...)...)...)
	})
	<-begun
	if code := p.signal(t, syscall.SIGTERM); code != exitDone {
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
	b := newBox(t)
	p := b.start(t)
	var doc drained
	must(t, &doc, b.args("drain", "--reason", "test", "--json")...)
	<-p.done
	if !doc.Draining || p.code() != exitDone {
		t.Errorf("drain said %+v, serve ended with %d\n%s", doc, p.code(), p.stderr)
	}
	if r := cli(t, b.args("status")...); r.code != exitUnreachable || !strings.Contains(r.stderr, "ronbox serve") {
		t.Errorf("status of no node: exit %d, %s", r.code, r.stderr)
	}
}

func TestURLAndToken(t *testing.T) {
	b := newBox(t)
	b.start(t)
	var s wire.Status
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
		{"reads need no token", []string{"--url", s.URL, "registry", "head"}, exitDone},
		{"writes do", append([]string{"--url", s.URL}, apply...), exitDenied},
		{"not any", append([]string{"--url", s.URL, "--token-file", none}, apply...), exitDenied},
		{"one with the scope", append([]string{"--url", s.URL, "--token-file", narrow}, apply...), exitDenied},
		{"the dev token may", append([]string{"--url", s.URL, "--token-file", admin}, apply...), exitDone},
		{"nobody there", []string{"--url", "http://127.0.0.1:1", "registry", "head"}, exitUnreachable},
		{"both ways", []string{"--url", s.URL, "--socket", "x", "registry", "head"}, exitUsage},
	} {
		if r := cli(t, tt.args...); r.code != tt.want {
			t.Errorf("%s: exit %d, want %d\n%s", tt.doc, r.code, tt.want, r.stderr)
		}
	}
}

// One command makes a node and serves it, the same command serves it again, and a person is told what to try.
func TestInitStart(t *testing.T) {
	made := newBox(t)
	b := &box{dir: made.dir + "2", env: made.env}
	t.Cleanup(func() { _ = os.RemoveAll(b.dir) })
	for _, life := range []string{"made", "is a node already"} {
		p := &process{cmd: exec.Command(binary, b.args("init", "--dev", "--start")...), stderr: &bytes.Buffer{}, done: make(chan struct{})}
		began := time.Now()
		b.run(t, p)
		until(t, "the node is ready", func() bool {
			r, err := b.client(t).Ready(t.Context(), "", "")
			return err == nil && r.Ready
		})
		t.Logf("%s: ready after %s", life, time.Since(began).Round(time.Millisecond))
		if code := p.signal(t, syscall.SIGTERM); code != exitDone {
			t.Errorf("exit %d\n%s", code, p.stderr)
		}
		for _, want := range []string{life, "URL ", "admin.token", b.dir + " status", "wallet transfer alice bob 100\n", "dev-signer.key"} {
			if !strings.Contains(p.stderr.String(), want) {
				t.Errorf("nobody is told %q:\n%s", want, p.stderr)
			}
		}
	}
}

func TestTopologyIsPrintedWithoutANode(t *testing.T) {
	var doc struct {
		Channels []map[string]any `json:"channels"`
		Tasks    []map[string]any `json:"tasks"`
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
	if len(doc.Channels) < 10 || len(doc.Tasks) < 8 {
		t.Errorf("%d channels and %d tasks: some are missing", len(doc.Channels), len(doc.Tasks))
	}
	if r := must(t, nil, "--data-dir", none, "debug", "topology", "--mermaid"); !strings.Contains(r.stdout, "flowchart") {
		t.Errorf("no picture: %s", r.stdout)
	}
	if r := must(t, nil, "--data-dir", none, "debug", "topology"); !strings.Contains(r.stdout, "| `proposals_tx` | queue | 512 |") {
		t.Errorf("no table: %s", r.stdout)
	}
}

// Ctrl-C is how a stream ends: quietly, and well.
func TestInterruptedStreamEndsWell(t *testing.T) {
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

// checkLog verifies the log of a node that does not run.
func (b *box) checkLog(t testing.TB) verifyDoc {
	t.Helper()
	r := spawn(t, "registry", "verify", "--db", filepath.Join(b.dir, "ronbox.db"), "--genesis", b.genesis, "--json")
	var doc verifyDoc
	if decode(t, r.stdout, &doc); r.code != exitDone || !doc.OK {
		t.Fatalf("verify: exit %d, %+v\n%s", r.code, doc, r.stderr)
	}
	return doc
}

func TestServeAnswersProbesOverTCP(t *testing.T) {
	b := newBox(t)
	b.start(t)
	var s wire.Status
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
