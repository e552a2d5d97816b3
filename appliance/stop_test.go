package appliance

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// The bounds of the parts of a stop add up to what is promised for after the drain.
func TestPartsOfAStop(t *testing.T) {
	const graces = 5 // of the services, of calls of the ledger, of the committer, of who is inside, of the log writer
	sum := storeWithin + serverWithin + spansWithin + linesWithin + graces*config.Default().Node.AbortGrace.D()
	if sum > 4*time.Second || 2*sum > afterDrain {
		t.Errorf("the parts take up to %s, a service manager waits for %s", sum, afterDrain)
	}
}

// However much hangs, the stop ends, and after a second signal it does not wait for the drain.
func TestStopIsBounded(t *testing.T) {
	for _, tt := range []struct {
		doc   string
		drain time.Duration
		again bool
	}{
		{"a committer that hangs", time.Second, false},
		{"the same, and a second signal", 30 * time.Second, true},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			t.Parallel()
			cfg, _ := devConfig(t)
			must(t, cfg.Registry.DrainDeadline.UnmarshalText([]byte(tt.drain.String())))
			must(t, cfg.Node.DrainCap.UnmarshalText([]byte("30s")))
			r := start(t, cfg)
			release := r.holdStore()
			defer release()
			late := r.lateWrite()
			hung := make(chan struct{})
			defer close(hung)
			r.sup.Start(r.counted(flow.Task{Service: "registry", Name: "hung", Count: 1, Run: func(context.Context) error {
				<-hung
				return nil
			}})...)
			r.stop()
			if tt.again {
				r.until("draining", func(p flow.Phase) bool { return p == flow.Draining })
				r.Abort()
			}
			if code := r.end(); code != ExitAborted {
				t.Errorf("exit %d, want %d", code, ExitAborted)
			}
			if err := <-late; err == nil {
				t.Error("a request that was aborted was told that it is done")
			}
		})
	}
}

// A straggler that reads does not hold up the stop: the file is left open for it.
func TestStragglerThatReads(t *testing.T) {
	cfg, _ := devConfig(t)
	must(t, cfg.Registry.DrainDeadline.UnmarshalText([]byte("200ms")))
	r := start(t, cfg)
	reads, over, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r.sup.Start(r.counted(flow.Task{Service: "registry", Name: "reader", Count: 1, Run: func(context.Context) error {
		defer close(left)
		return r.store.View(context.WithoutCancel(t.Context()), func(store.Reader) error {
			close(reads)
			<-over
			return nil
		})
	}})...)
	<-reads
	r.stop()
	if code := r.end(); code != ExitAborted {
		t.Errorf("exit %d, want %d\n%s", code, ExitAborted, r.log)
	}
	close(over)
	<-left
	must(t, r.store.Close())
}

// While it waits for balancers to notice, the node says that it is not ready, and takes writes nevertheless.
func TestPredrainIsUnready(t *testing.T) {
	cfg, _ := devConfig(t)
	must(t, cfg.Node.Predrain.UnmarshalText([]byte("5m")))
	r := start(t, cfg)
	r.stop()
	r.until("draining", func(p flow.Phase) bool { return p == flow.Draining })
	r.writable(false)
	if resp := r.raw("GET", "/readyz", ""); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz is %d", resp.StatusCode)
	}
	ready, err := r.socket().Ready(t.Context(), "", "")
	if err != nil || ready.Ready || !slices.Contains(ready.Missing, "node.predrain") {
		t.Errorf("readyz %+v, %v", ready, err)
	}
	if _, err := r.socket().Mint(t.Context(), wire.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}}); err != nil {
		t.Errorf("a write while the node only announces its stop: %v", err)
	}
	r.Abort()
	if code := r.end(); code != ExitAborted {
		t.Errorf("exit %d, want %d", code, ExitAborted)
	}
}

// A disk that fails while the node drains ends it as one that fails before: with 74, and not when the wait is over.
func TestPoisonedWhileDraining(t *testing.T) {
	cfg, _ := devConfig(t)
	must(t, cfg.Node.Predrain.UnmarshalText([]byte("5m")))
	r := start(t, cfg)
	r.stop()
	r.until("draining", func(p flow.Phase) bool { return p == flow.Draining })
	release := r.holdStore() // so that the write is there before the disk is met
	late := r.lateWrite()
	r.poison()
	release()
	brokenDisk(t, <-late)
	if code := r.end(); code != ExitStorage {
		t.Errorf("exit %d, want %d\n%s", code, ExitStorage, r.log)
	}
	if strings.Contains(r.log.String(), `"event":"stopped"`) {
		t.Errorf("a poisoned node says that it stopped:\n%s", r.log)
	}
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
	if code := r.end(); code != ExitStorage {
		t.Errorf("exit %d, want %d\n%s", code, ExitStorage, r.log)
	}
	if strings.Contains(r.log.String(), `"event":"stopped"`) {
		t.Errorf("a poisoned node says that it stopped:\n%s", r.log)
	}
}
