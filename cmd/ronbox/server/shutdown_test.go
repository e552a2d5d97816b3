package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// A stop under load answers every accepted request with its result or an error, and exits with 0.
func TestDrainUnderLoad(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	var answered, lost atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		c := r.tcp()
		wg.Go(func() { r.hammer(c, i, &answered, &lost) })
	}
	r.await("a warm node", func() bool { return answered.Load() >= 300 || lost.Load() > 0 })
	r.stop()
	code := r.end()
	wg.Wait()
	if code != process.ExitClean || lost.Load() > 0 {
		t.Errorf("exit %d, %d requests lost of %d", code, lost.Load(), answered.Load())
	}
	t.Logf("%d requests answered", answered.Load())
}

// hammer sends requests until the node reports that it drains or has stopped.
func (r *rig) hammer(c *apiClient, worker int, answered, lost *atomic.Int64) {
	ctx := context.WithoutCancel(r.t.Context())
	for i := 0; ; i++ {
		var err error
		switch i % 3 {
		case 0:
			_, err = c.Propose(ctx, draft(2, fmt.Sprintf("w%d-%d", worker, i%9)), "")
		case 1:
			_, err = c.Head(ctx)
		case 2:
			_, err = c.Proposals(ctx, "", 10)
		}
		var p *wire.Problem
		switch {
		case errors.Is(err, client.ErrNotReachable):
			return // the listener is closed: the request was not accepted
		case errors.As(err, &p) && p.Reason == "draining":
			answered.Add(1)
			return
		case err == nil, errors.As(err, &p) && (p.Status < 500 || p.Retryable): // as it is on a slow disk
			answered.Add(1)
		default:
			lost.Add(1)
			r.t.Errorf("worker %d, request %d: %v", worker, i, err)
			return
		}
	}
}

// hold is a command that keeps the committer busy until it is released.
type hold struct {
	in, out chan struct{}
}

func (hold) Kind() string { return "node.hold/1" }

func (h hold) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	w.Then(func() {
		close(h.in)
		<-h.out
	})
	return struct{}{}, nil
}

// holdStore makes the committer wait; the returned func lets it go on.
func (r *rig) holdStore() (release func()) {
	h := hold{make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = store.Commit(context.WithoutCancel(r.t.Context()), r.store, store.Control, store.Command[struct{}](h))
	}()
	<-h.in
	var once sync.Once
	release = func() { once.Do(func() { close(h.out); <-done }) }
	r.t.Cleanup(release)
	return release
}

// While the node drains: probes and reads go on, writes are refused, and every answer closes its
// connection.
func TestWhatADrainingNodeAnswers(t *testing.T) {
	cfg, _ := devConfig(t)
	must(t, cfg.Registry.DrainDeadline.UnmarshalText([]byte("30s")))
	must(t, cfg.Node.DrainCap.UnmarshalText([]byte("30s")))
	r := start(t, cfg)
	release, late := r.heldWrite()
	if err := r.socket().Drain(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	r.until("draining", func(p flow.Phase) bool { return p == flow.Draining })
	r.await("the gate to shut", func() bool { return r.raw("GET", "/registry/head", "").Close })
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/healthz", 200}, {"GET", "/readyz", 503}, {"GET", "/version", 200}, {"GET", "/metrics", 200},
		{"GET", "/registry/head", 200}, {"GET", "/registry/1", 200}, {"POST", "/registry/proposals", 503},
		{"GET", "/registry/stream", 503},
	} {
		resp := r.raw(tt.method, tt.path, string(draft(2, "x")))
		if resp.StatusCode != tt.status || !resp.Close && !bypass(tt.path) {
			t.Errorf("%s %s: %d (closes %v), want %d", tt.method, tt.path, resp.StatusCode, resp.Close, tt.status)
		}
		if wait, _ := strconv.Atoi(resp.Header.Get("Retry-After")); tt.method == "POST" && (wait < 10 || wait > 60) {
			t.Errorf("it is to be asked again after %d s, where the drain may take 30", wait)
		}
	}
	release()
	if err := <-late; err != nil {
		t.Errorf("a request let in before the drain: %v", err)
	}
	if code := r.end(); code != process.ExitClean {
		t.Errorf("exit %d\n%s", code, r.log)
	}
}

func bypass(path string) bool {
	return path == "/healthz" || path == "/readyz" || path == "/version" || path == "/metrics"
}

// heldWrite makes the committer wait, and starts a write that waits for it. It returns a func that
// lets the committer go on, and a channel for the result of the write. It begins again if the node
// finds its store slow before the write has come.
func (r *rig) heldWrite() (release func(), late <-chan error) {
	r.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		release = r.holdStore()
		late, begun := r.lateWrite()
		if begun {
			return release, late
		}
		release()
		r.writable(true)
	}
	r.t.Fatal("no write comes before the store is slow")
	return nil, nil
}

// lateWrite starts a write, and reports whether it has come to the committer and not been refused.
func (r *rig) lateWrite() (result <-chan error, begun bool) {
	r.t.Helper()
	c, late, v := r.tcp(), make(chan error, 1), r.services.Registry().Head().Head.Version+1
	others := r.depth("work") // the checkpoint of a version just made may be among them
	go func() {
		_, err := c.Propose(r.t.Context(), draft(v, "late"), "")
		late <- err
	}()
	r.await("the write to begin", func() bool {
		begun = r.metric("inflight_requests", "route", "/registry/proposals") == 1 && r.depth("work") > others
		return begun || len(late) > 0
	})
	return late, begun
}

// inHand waits until n commands wait for the committer.
func (r *rig) inHand(n int) {
	r.t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.After(patience)
	defer tick.Stop()
	for r.depth("work") < n {
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatal("no command arrives")
		}
	}
}

// depth returns the number of commands in one of the lanes of the store.
func (r *rig) depth(lane string) int {
	r.t.Helper()
	return int(r.metric("queue_depth", "service", "store", "queue", lane))
}

// raw sends one request on a connection of its own.
func (r *rig) raw(method, path, body string) *http.Response {
	r.t.Helper()
	if method == http.MethodGet {
		body = ""
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.Addr()+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	_ = resp.Body.Close()
	return resp
}

// An expired drain deadline aborts the remaining requests: the node exits with 10.
func TestDrainDeadline(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	must(t, cfg.Registry.DrainDeadline.UnmarshalText([]byte("200ms")))
	r := launchWith(t, cfg, hurried(cfg)).begin()
	release, late := r.heldWrite()
	r.stop()
	if code := r.end(); code != process.ExitAborted {
		t.Errorf("exit %d, want %d\n%s", code, process.ExitAborted, r.log)
	}
	if err := <-late; err == nil {
		t.Error("a request that was aborted was told that it is done")
	}
	line := r.stopped()
	if !strings.Contains(line.CutOff, "registry.pipeline") || !strings.Contains(line.CutOff, "store.committer") ||
		!strings.Contains(line.Ended["registry"], "request: cancelled 1") {
		t.Errorf("the log says %+v", line)
	}
	release()
}

// A stop says how the work of each service and kind ended: in its last log line, in the audit row of
// the drain, and to the caller of a drain that waits.
func TestStopReports(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	told, err := r.socket().DrainAndWait(t.Context(), "test")
	must(t, err)
	if code := r.end(); code != process.ExitClean {
		t.Errorf("exit %d\n%s", code, r.log)
	}
	pipeline := nodeapi.Ending{Service: "registry", Kind: "pipeline", Finished: 1}
	if !told.Done || told.Aborted != 0 || !slices.Contains(told.Ended, pipeline) {
		t.Errorf("the drain says %+v", told)
	}
	line := r.stopped()
	if line.Exit != process.ExitClean || line.Aborted != 0 || line.CutOff != "" ||
		line.Finished+line.Cancelled <= told.Finished+told.Cancelled || !strings.Contains(line.Ended["registry"], "pipeline: finished 1") ||
		!strings.Contains(line.Ended["node"], "request: finished 1") ||
		!strings.Contains(line.Ended["node"], "reloader: cancelled 1") {
		t.Errorf("the log says %+v after %+v", line, told)
	}
	row := r.drainRow()
	if row.Reason != "test" || !strings.Contains(row.Detail["registry"], "pipeline: finished 1") {
		t.Errorf("the audit row is %+v", row)
	}
}

// stoppedLine is the log line of a node that has stopped.
type stoppedLine struct {
	Exit, Finished, Cancelled, Aborted int
	CutOff                             string `json:"cut_off"`
	Ended                              map[string]string
}

// stopped returns the log line of a node that has stopped.
func (r *rig) stopped() (out stoppedLine) {
	r.t.Helper()
	for line := range strings.Lines(r.log.String()) {
		if !strings.Contains(line, `"event":"stopped"`) {
			continue
		}
		must(r.t, json.Unmarshal([]byte(line), &out))
	}
	return out
}

// drainRow returns the audit row of the drain of a node that has stopped.
func (r *rig) drainRow() store.Event {
	r.t.Helper()
	rows := auditEvents(r.t, r.cfg)
	at := slices.IndexFunc(rows, func(e store.Event) bool { return e.Event == "node.drain" })
	if at < 0 {
		r.t.Fatalf("no row of the drain among %+v", rows)
	}
	return rows[at]
}

// What a stop cuts off is named by service and kind, with the exit code 10.
func TestStopNamesWhatItCutOff(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	must(t, cfg.Registry.DrainDeadline.UnmarshalText([]byte("2s")))
	r := launchWith(t, cfg, hurried(cfg)).begin()
	r.sup.Start(r.countLives(
		flow.Task{Service: "registry", Name: "stubborn", Count: 2, Run: func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}})...)
	told, err := r.socket().DrainAndWait(t.Context(), "test")
	must(t, err)
	if code := r.end(); code != process.ExitAborted {
		t.Errorf("exit %d\n%s", code, r.log)
	}
	if !slices.Contains(told.Ended, nodeapi.Ending{Service: "registry", Kind: "stubborn", Aborted: 2}) {
		t.Errorf("the drain says %+v", told)
	}
	if line := r.stopped(); line.Exit != process.ExitAborted || line.Aborted != 2 || line.CutOff != "registry.stubborn" {
		t.Errorf("the log says %+v", line)
	}
	if row := r.drainRow(); !strings.Contains(row.Detail["registry"], "stubborn: aborted 2") {
		t.Errorf("the audit row is %+v", row)
	}
}

// A second signal does not wait for the drain.
func TestSecondSignalAborts(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	must(t, cfg.Registry.DrainDeadline.UnmarshalText([]byte("30s")))
	must(t, cfg.Node.DrainCap.UnmarshalText([]byte("30s")))
	must(t, cfg.Node.Predrain.UnmarshalText([]byte("5m")))
	r := start(t, cfg)
	r.stop()
	r.until("draining", func(p flow.Phase) bool { return p == flow.Draining })
	if resp := r.raw("GET", "/registry/head", ""); resp.StatusCode != 200 {
		t.Errorf("before the gate shuts a read is %d", resp.StatusCode)
	}
	r.Abort()
	if code := r.end(); code != process.ExitAborted {
		t.Errorf("exit %d, want %d", code, process.ExitAborted)
	}
}

// poison breaks the disk under a running node: writes to /dev/null pass, its fdatasync does not.
func (r *rig) poison() {
	r.t.Helper()
	null, err := os.Open(os.DevNull)
	must(r.t, err)
	defer func() { _ = null.Close() }()
	fds, err := filepath.Glob("/proc/self/fd/*")
	must(r.t, err)
	hit := 0
	for _, link := range fds {
		var fd int
		if to, err := os.Readlink(link); err != nil || to != r.cfg.Path(config.DatabaseName) {
			continue
		}
		_, err := fmt.Sscanf(filepath.Base(link), "%d", &fd)
		must(r.t, err)
		must(r.t, syscall.Dup3(int(null.Fd()), fd, syscall.O_CLOEXEC))
		hit++
	}
	if hit == 0 {
		r.t.Fatal("the database is not open")
	}
}

// After a failed sync nothing succeeds, the node ends with 74, and the next one finds every
// acknowledged version.
func TestPoisonedNodeEnds(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c, key := r.tcp(), signer(t, cfg)
	r.mustPut(c, key, 2, "kept")
	release, late := r.heldWrite() // so that the write is there before the disk is met
	r.poison()
	release()
	brokenDisk(t, <-late)
	if code := r.end(); code != process.ExitStorage {
		t.Errorf("exit %d, want %d\n%s", code, process.ExitStorage, r.log)
	}
	if p, _ := r.Lifecycle(); p != flow.Poisoned {
		t.Errorf("phase %v", p)
	}
	again := start(t, twin(t, cfg)) // this process keeps the map, and with it the lock, of the file itself
	if head, err := again.tcp().Head(t.Context()); err != nil || head.Version != 2 {
		t.Errorf("head %+v, %v", head, err)
	}
	again.halt()
}

// crashed returns a copy of the directory of a running node, as it is on disk if the process dies.
// The store is held meanwhile.
func (r *rig) crashed() *config.Config {
	r.t.Helper()
	defer r.holdStore()()
	return twin(r.t, r.cfg)
}

// brokenDisk checks the error of a write: the store has failed, or the write was canceled because a
// flush of the ledger met the disk fault first.
func brokenDisk(t *testing.T, err error) {
	t.Helper()
	if p := problem(t, err); p.Status != 503 || p.Reason != "store_failed" && p.Reason != "canceled" {
		t.Errorf("a write on a broken disk: %+v", p)
	}
}

// twin copies a node's directory as it is on the disk.
func twin(t *testing.T, cfg *config.Config) *config.Config {
	t.Helper()
	to := newConfig(t)
	must(t, os.Mkdir(to.Node.DataDir, 0o700))
	for _, name := range []string{config.DatabaseName, config.SecretName, config.TokenName, config.FileName} {
		raw, err := os.ReadFile(cfg.Path(name))
		must(t, err)
		must(t, os.WriteFile(to.Path(name), raw, 0o600))
	}
	return loaded(t, to)
}

// boom is a command that panics in the committer.
type boom struct{}

func (boom) Kind() string { return "node.boom/1" }

func (boom) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	w.Then(func() { panic("boom") })
	return struct{}{}, nil
}

// A committer that panics ends the node with 70.
func TestCommitterDeath(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	if _, err := store.Commit(t.Context(), r.store, store.Control, store.Command[struct{}](boom{})); err == nil {
		t.Error("a command that killed the committer succeeded")
	}
	if code := r.end(); code != process.ExitInternal {
		t.Errorf("exit %d, want %d\n%s", code, process.ExitInternal, r.log)
	}
}

// A signal while the node boots is a clean end.
func TestSignalDuringBoot(t *testing.T) {
	cfg, _ := devConfig(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out := &logs{}
	if code := wired(t, cfg, Options{}, out).Run(ctx); code != process.ExitClean {
		t.Errorf("exit %d\n%s", code, out)
	}
}

// An open event stream is told and closed; it does not hold up the stop.
func TestStreamsEndWithTheNode(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c, seen := r.tcp(), make(chan string, 16)
	ended := make(chan error, 1)
	go func() {
		ended <- c.Stream(t.Context(), client.StreamOptions{}, func(e client.Event) error {
			seen <- e.Name
			if e.Name == wire.EventShutdown {
				return client.ErrStop
			}
			return nil
		})
	}()
	if first := <-seen; first != wire.EventHello {
		t.Errorf("the first event is %s", first)
	}
	r.halt()
	if err := <-ended; err != nil {
		t.Errorf("the stream ended with %v", err)
	}
	if last := <-seen; last != wire.EventShutdown {
		t.Errorf("the last event is %s", last)
	}
}

// A collector that hangs costs the stop its spans, not its log lines, and no more than its share of
// the time.
func TestHangingCollector(t *testing.T) {
	hung := make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung }))
	defer collector.Close()
	defer close(hung)
	cfg, _ := devConfig(t)
	cfg.OTel.Exporter, cfg.OTel.Endpoint = "otlp", collector.URL
	within := patientStop
	within.spans = stopWithin.spans
	r := launchWith(t, cfg, Options{within: within}).begin()
	r.mustPut(r.socket(), signer(t, cfg), 2, "traced")
	r.halt()
	for _, want := range []string{"spans lost", `"event":"stopped"`} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
}

// A call that lasts until its caller has enough does not make a stop an unclean one.
func TestStopEndsLongCalls(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	within := patientStop
	within.server = stopWithin.server
	r := launchWith(t, cfg, Options{within: within}).begin()
	ended := make(chan error, 1)
	go func() { ended <- r.socket().Profile(t.Context(), "mutex", 5*time.Minute, io.Discard) }()
	r.await("the profile", func() bool { return runtime.SetMutexProfileFraction(-1) > 0 })
	r.halt()
	if err := <-ended; err == nil {
		t.Error("a profile that was cut short was given as a whole one")
	}
}

// The bounds of the parts of a stop add up to the documented bound after the drain.
func TestPartsOfAStop(t *testing.T) {
	const graces = 5 // of the services, of calls of the ledger, of the committer, of requests inside, of the log writer
	sum := stopWithin.store + stopWithin.server + stopWithin.spans + stopWithin.lines +
		graces*config.Default().Node.AbortGrace.D()
	if sum > 4*time.Second || 2*sum > afterDrain {
		t.Errorf("the parts take up to %s, a service manager waits for %s", sum, afterDrain)
	}
}

// However much hangs, the stop ends, and after a second signal it does not wait for the drain.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		doc   string
		drain time.Duration
		again bool
	}{{"a committer that hangs", time.Second, false}, {"the same, and a second signal", 30 * time.Second, true}} {
		t.Run(tt.doc, func(t *testing.T) {
			t.Parallel()
			cfg, _ := devConfig(t)
			must(t, cfg.Registry.DrainDeadline.UnmarshalText([]byte(tt.drain.String())))
			must(t, cfg.Node.DrainCap.UnmarshalText([]byte("30s")))
			r := launchWith(t, cfg, hurried(cfg)).begin()
			release, late := r.heldWrite()
			defer release()
			hung := make(chan struct{})
			defer close(hung)
			r.sup.Start(
				r.countLives(flow.Task{Service: "registry", Name: "hung", Count: 1, Run: func(context.Context) error {
					<-hung
					return nil
				}})...)
			r.stop()
			if tt.again {
				r.until("draining", func(p flow.Phase) bool { return p == flow.Draining })
				r.Abort()
			}
			if code := r.end(); code != process.ExitAborted {
				t.Errorf("exit %d, want %d", code, process.ExitAborted)
			}
			if err := <-late; err == nil {
				t.Error("a request that was aborted was told that it is done")
			}
		})
	}
}

// A straggler that reads does not hold up the stop: the file is left open for it.
func TestStragglerThatReads(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	must(t, cfg.Registry.DrainDeadline.UnmarshalText([]byte("200ms")))
	r := launchWith(t, cfg, hurried(cfg)).begin()
	reads, over, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r.sup.Start(r.countLives(flow.Task{Service: "registry", Name: "reader", Count: 1, Run: func(context.Context) error {
		defer close(left)
		return r.store.View(context.WithoutCancel(t.Context()), func(store.Reader) error {
			close(reads)
			<-over
			return nil
		})
	}})...)
	<-reads
	r.stop()
	if code := r.end(); code != process.ExitAborted {
		t.Errorf("exit %d, want %d\n%s", code, process.ExitAborted, r.log)
	}
	close(over)
	<-left
	must(t, r.store.Close())
}

// While it waits for balancers to notice, the node says that it is not ready, and takes writes
// nevertheless.
func TestPredrainIsUnready(t *testing.T) {
	cfg, _ := devConfig(t)
	must(t, cfg.Node.Predrain.UnmarshalText([]byte("5m")))
	r := start(t, cfg)
	r.stop()
	r.await("503 of /readyz", func() bool {
		return r.raw("GET", "/readyz", "").StatusCode == http.StatusServiceUnavailable
	})
	ready, err := r.socket().Ready(t.Context(), "", "")
	if err != nil || ready.Ready || !slices.Contains(ready.Missing, "node.predrain") {
		t.Errorf("readyz %+v, %v", ready, err)
	}
	if _, err := r.socket().
		Mint(t.Context(), nodeapi.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}}); err != nil {
		t.Errorf("a write while the node only announces its stop: %v", err)
	}
	r.Abort()
	if code := r.end(); code != process.ExitAborted {
		t.Errorf("exit %d, want %d", code, process.ExitAborted)
	}
}

// A disk that fails while the node drains ends it as one that fails before: with 74, and not when
// the wait is over.
func TestPoisonedWhileDraining(t *testing.T) {
	cfg, _ := devConfig(t)
	must(t, cfg.Node.Predrain.UnmarshalText([]byte("5m")))
	r := start(t, cfg)
	r.stop()
	r.until("draining", func(p flow.Phase) bool { return p == flow.Draining })
	release, late := r.heldWrite() // so that the write is there before the disk is met
	r.poison()
	release()
	brokenDisk(t, <-late)
	if code := r.end(); code != process.ExitStorage {
		t.Errorf("exit %d, want %d\n%s", code, process.ExitStorage, r.log)
	}
	if strings.Contains(r.log.String(), `"event":"stopped"`) {
		t.Errorf("a poisoned node says that it stopped:\n%s", r.log)
	}
}

// A page that is found damaged while the node runs ends it with 65, and with what to do: the disk
// has taken all writes.
func TestDamagedWhileRunning(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	file, err := os.OpenFile(cfg.Path(config.DatabaseName), os.O_RDWR, 0)
	must(t, err)
	info, err := file.Stat()
	must(t, err)
	_, err = file.WriteAt(bytes.Repeat([]byte{0xff}, int(info.Size())-2*store.PageSize), 2*store.PageSize)
	must(t, errors.Join(err, file.Close()))
	if _, err := r.socket().
		Mint(t.Context(), nodeapi.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}}); err == nil {
		t.Error("a write to a damaged file succeeded")
	}
	if code := r.end(); code != process.ExitCorrupt {
		t.Errorf("exit %d, want %d\n%s", code, process.ExitCorrupt, r.log)
	}
	r.logged("ronbox db restore")
}

// A disk that fails at the very last write is told as such.
func TestPoisonedAtTheEnd(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	release := r.holdStore()
	r.stop()
	r.until("stopping", func(p flow.Phase) bool { return p == flow.Draining || p == flow.Stopping })
	r.poison()
	release()
	if code := r.end(); code != process.ExitStorage {
		t.Errorf("exit %d, want %d\n%s", code, process.ExitStorage, r.log)
	}
	if strings.Contains(r.log.String(), `"event":"stopped"`) {
		t.Errorf("a poisoned node says that it stopped:\n%s", r.log)
	}
}
