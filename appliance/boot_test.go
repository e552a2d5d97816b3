package appliance

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Between opening the file and having recovered, probes are answered on the bound sockets and nothing else is; the file
// has not been written to.
func TestSocketsBeforeRecovery(t *testing.T) {
	cfg, _ := devConfig(t)
	r := &rig{t: t, cfg: cfg, log: &logs{}}
	r.Node = wired(t, cfg, Options{}, r.log)
	r.sup = flow.NewSupervisor(context.WithoutCancel(t.Context()), r.catalog, flow.Hooks{})
	defer r.sup.Close()
	if e := r.open(t.Context()); e.kind != evOpened {
		t.Fatalf("%+v\n%s", e, r.log)
	}
	if r.store.Info() != nil {
		t.Error("the file was prepared before the sockets were bound")
	}
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 503, "/version": 200, "/metrics": 200, "/registry/head": 503, "/registry/1": 503,
	} {
		if resp := r.raw(http.MethodGet, path, ""); resp.StatusCode != want {
			t.Errorf("%s is %d, want %d", path, resp.StatusCode, want)
		}
	}
	if got := r.Version().Formats["ledger"]; got != tables.Format {
		t.Errorf("the ledger's tables have format %d", got)
	}
	r.step(event{kind: evOpened})
	r.step(event{kind: evDrain})
	if e := r.Node.stop(context.WithoutCancel(t.Context())); e.kind != evClosed {
		t.Errorf("%+v", e)
	}
}

// A stop signal that meets the boot in the middle of a commit, of which nobody knows then whether it was made, is no failed start.
func TestStopInTheMiddleOfTheBoot(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	n := wired(t, newConfig(t), Options{}, io.Discard)
	unknown := fmt.Errorf("declare the assets: %w", &ledger.UnavailableError{Unknown: true, Cause: store.ErrUnknown})
	if e := n.bootFailed(ctx, unknown); e.kind != evFailed {
		t.Errorf("without a signal: %+v", e)
	}
	stop()
	if e := n.bootFailed(ctx, unknown); e.kind != evDrain {
		t.Errorf("%+v", e)
	}
}

// clogged is a log pipe that nobody reads until it is freed.
type clogged struct {
	free chan struct{}
	once sync.Once
}

func (c *clogged) Write(p []byte) (int, error) {
	<-c.free
	return len(p), nil
}

// A log pipe that is full before the start holds up neither the boot nor the requests nor the stop.
func TestFullLogPipe(t *testing.T) {
	cfg, _ := devConfig(t)
	pipe := &clogged{free: make(chan struct{})}
	r := &rig{t: t, cfg: cfg, log: &logs{}, up: make(chan struct{}), exit: make(chan int, 1)}
	r.Node = wired(t, cfg, Options{}, pipe)
	defer pipe.once.Do(func() { close(pipe.free) })
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() { r.exit <- r.Run(ctx) }()
	r.await("serving", func() bool { p, _ := r.Lifecycle(); return p == flow.Running })
	r.mustPut(r.tcp(), signer(t, cfg), 2, "x")
	r.stop()
	if code := r.end(); code != ExitClean {
		t.Errorf("exit %d", code)
	}
}
