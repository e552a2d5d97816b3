package server

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines"
	nodeapi "ronbox/httpapi/wire/node"
)

// A task that keeps failing adds a readiness key of its service, which is a hard fault if writes
// need the task. The key disappears when the task recovers.
func TestEscalationShowsInReadiness(t *testing.T) {
	for _, tt := range []struct {
		service, task string
		hard          bool
	}{
		{"registry", "pipeline", true}, {"registry", "publisher", false}, {"node", "http", true},
		{"node", "health_gate", false},
	} {
		n := wired(t, newConfig(t), Options{}, &logs{})
		for _, p := range n.probes() {
			n.board.Set(p.Service, p.Key, nil)
		}
		key := tt.service + ".task:" + tt.task
		n.escalated(tt.service, tt.task, true)
		if r := n.board.Report(tt.service, ""); !slices.Contains(r.Missing, key) || tt.hard && r.WriteReady {
			t.Errorf("%s: %+v", key, r)
		}
		n.escalated(tt.service, tt.task, false)
		if r := n.board.Report(tt.service, ""); slices.Contains(r.Missing, key) {
			t.Errorf("%s stays: %+v", key, r)
		}
		n.services.Close(t.Context())
	}
}

// A soft fault degrades a serving node, which still accepts writes. The node heals when the fault
// ends.
func TestDegradedAndHealed(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	r.until("running", func(p flow.Phase) bool { return p == flow.Running })
	r.escalated("registry", "publisher", true)
	r.until("degraded", func(p flow.Phase) bool { return p == flow.Degraded })
	r.mustPut(r.socket(), signer(t, cfg), 2, "x")
	r.escalated("registry", "publisher", false)
	r.until("running", func(p flow.Phase) bool { return p == flow.Running })
	r.halt()
}

// OnRunning is called once, with the address that the node serves.
func TestOnRunning(t *testing.T) {
	cfg, _ := devConfig(t)
	n, told := wired(t, cfg, Options{}, &logs{}), make(chan nodeapi.Status, 2)
	n.OnRunning(func(s nodeapi.Status) { told <- s; n.Drain(engines.Actor{}, "", "seen") })
	if code := n.Run(t.Context()); code != process.ExitClean {
		t.Errorf("exit %d", code)
	}
	if s := <-told; s.URL != "http://"+n.Addr() || s.NodeID == "" || len(told) > 0 {
		t.Errorf("told %+v, and %d times more", s, len(told))
	}
}

// The service manager is notified of every long step of a boot.
func TestLongBootsAreTold(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	r.receipt("/v1/transfer", "k", pay("alice", "bob", "1", 1))
	crashed := r.crashed()
	r.halt()
	off := *cfg
	off.Registry.Enabled = false
	for _, tt := range []struct {
		cfg  *config.Config
		want string
	}{{crashed, "STATUS=check"}, {cfg, "STATUS=verify the registry"}, {&off, "STATUS=verify the ledger"}} {
		said := listen(t)
		r := start(t, tt.cfg)
		r.halt()
		r.await("the manager to hear the last", func() bool { return strings.Contains(said.all(), "STATUS=stopped") })
		if !strings.Contains(said.all(), tt.want) {
			t.Errorf("the manager does not hear %q:\n%s", tt.want, said.all())
		}
	}
}

// notices collects the notifications to the service manager.
type notices struct {
	mu   sync.Mutex
	said []string // guarded by mu
}

// listen acts as the service manager until the test ends.
func listen(t *testing.T) *notices {
	t.Helper()
	dir, err := os.MkdirTemp("", "notify")
	must(t, err)
	path := filepath.Join(dir, "sock")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	n, done := &notices{}, make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 4096); ; {
			size, err := conn.Read(buf)
			if err != nil {
				return
			}
			n.mu.Lock()
			n.said = append(n.said, string(buf[:size]))
			n.mu.Unlock()
		}
	}()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
		_ = os.RemoveAll(dir)
	})
	return n
}

func (n *notices) all() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.said, "\n--\n")
}

// untilEnd waits for STATUS=end, which a test sends last.
func (n *notices) untilEnd(t *testing.T) {
	t.Helper()
	deadline := time.After(patience)
	for !strings.Contains(n.all(), "STATUS=end") {
		select {
		case <-deadline:
			t.Fatal("nothing arrives")
		case <-time.After(time.Millisecond):
		}
	}
}

// The service manager is notified when the node is ready, is alive, reloads and stops, in this
// order.
func TestServiceManagerIsTold(t *testing.T) {
	told := listen(t)
	t.Setenv("WATCHDOG_USEC", "600000")
	t.Setenv("WATCHDOG_PID", "")
	r, rewrite := reloadable(t)
	r.await("READY=1", func() bool {
		return strings.Contains(told.all(), "READY=1\nSTATUS=ready, serving http://"+r.Addr())
	})
	r.await("the watchdog", func() bool { return strings.Count(told.all(), "WATCHDOG=1") >= 2 })
	rewrite("log.level = \"warn\"\n")
	_, err := r.Reload(t.Context(), engines.Actor{}, "")
	must(t, err)
	r.await("the end of the reload", func() bool {
		return regexp.MustCompile(`(?s)RELOADING=1\nMONOTONIC_USEC=\d+\n--\n.*READY=1`).MatchString(told.all())
	})
	r.halt()
	order := regexp.MustCompile(
		`(?s)STATUS=recovering.*READY=1\nSTATUS=ready, serving.*RELOADING=1.*READY=1.*STOPPING=1\nSTATUS=Draining.*STATUS=stopped`,
	)
	r.await("the stop", func() bool { return order.MatchString(told.all()) })
}

// A long start asks for more time at intervals, not at every step.
func TestLongStartAsksForTime(t *testing.T) {
	told := listen(t)
	cfg := newConfig(t)
	n := wired(t, cfg, Options{}, &logs{})
	defer n.services.Close(t.Context())
	for done := range int64(50) {
		n.bootProgress("migrate", done, 50)
	}
	n.manager.Status("end")
	told.untilEnd(t)
	if got := strings.Count(told.all(), "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=migrate: "); got != 1 {
		t.Errorf("asked %d times: %q", got, told.all())
	}
}

// A stalled disk makes the node unready for writes only: reads and probes continue, and the node
// heals by itself.
func TestSlowDiskTakesWritesFirst(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	release := r.holdStore()
	r.writable(false)
	for path, status := range map[string]int{
		"/readyz":             503,
		"/readyz?plane=write": 503, "/readyz?plane=read": 200, "/healthz": 200, "/registry/head": 200, "/registry/1": 200,
	} {
		if resp := r.raw("GET", path, ""); resp.StatusCode != status {
			t.Errorf("%s is %d while the disk stalls, want %d", path, resp.StatusCode, status)
		}
	}
	release()
	r.writable(true)
	if _, err := r.tcp().Propose(t.Context(), draft(2, "x"), ""); err != nil {
		t.Errorf("healed: %v", err)
	}
}
