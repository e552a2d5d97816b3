package appliance

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/config"
	"ronbox/engines"
	"ronbox/httpapi/wire"
)

// live is one whole life of a node on cfg, which is asked to stop as soon as it serves. When it reads its clock for the nth time, do is
// done to it, in the middle of whatever it does then. It gives the exit code, and how often the clock was read.
func (r *rig) live(nth int64, do func(*rig)) (exit int, reads int64) {
	r.t.Helper()
	var count, loads atomic.Int64
	load := func() (*config.Config, []config.Entry, error) {
		next := *r.cfg
		next.Registry.Limits.RPS = 1000 + int(loads.Add(1))
		next.Server.Bind = []string{"127.0.0.1:0", "127.0.0.2:0"}[loads.Load()%2]
		return &next, nil, nil
	}
	n, err := assemble(r.cfg, Build{Version: "test"}, Options{Load: load}, r.log, func() time.Time {
		if count.Add(1) == nth {
			do(r)
		}
		return time.Now()
	})
	must(r.t, err)
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	r.Node, r.stop, r.exit = n, cancel, make(chan int, 1)
	r.OnRunning(func(wire.Status) { cancel() })
	go func() { r.exit <- r.Run(ctx) }()
	exit = r.end()
	return exit, count.Load()
}

// Whatever comes at whatever moment of a node's life, from the first step of the boot to the last of the stop: it ends in order, whoever
// asked for a reload is answered, and the next life finds a file that was closed.
func TestAnyMoment(t *testing.T) {
	var asked sync.WaitGroup
	reload := func(r *rig) {
		n, ctx := r.Node, r.t.Context()
		asked.Go(func() { _, _ = n.Reload(ctx, engines.Actor{}, "") })
	}
	for _, tt := range []struct {
		doc  string
		do   func(*rig)
		most int // the exit code
	}{
		{"a signal", func(r *rig) { r.stop() }, ExitClean},
		{"two signals", func(r *rig) { r.stop(); r.Abort() }, ExitAborted},
		{"a hangup", func(r *rig) { r.Hangup() }, ExitClean},
		{"a signal between reloads", func(r *rig) { reload(r); r.Hangup(); r.stop(); reload(r) }, ExitClean},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			cfg, _ := devConfig(t)
			closed := true
			for nth, reads := int64(1), int64(1); nth <= reads; nth++ {
				r := &rig{t: t, cfg: cfg, log: &logs{}}
				var exit int
				exit, reads = r.live(nth, tt.do)
				all := r.log.String()
				if exit != ExitClean && exit != tt.most || closed && strings.Contains(all, "unclean_boot") || strings.Contains(all, `"level":"error"`) {
					t.Errorf("at read %d of the clock: exit %d\n%s", nth, exit, all)
				}
				closed = exit == ExitClean
				answered := make(chan struct{})
				go func() { asked.Wait(); close(answered) }()
				select {
				case <-answered:
				case <-time.After(patience):
					t.Fatalf("at read %d of the clock: a reload was not answered\n%s", nth, all)
				}
			}
		})
	}
}
