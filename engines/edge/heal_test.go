package edge_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"

	"ronbox/engines/edge"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/fill"
)

// shown returns the fault of the content store in readiness.
func (r *rig) shown() string {
	r.board.Sample(r.now())
	return r.board.Report(service, "").Causes[service+"."+edge.KeyStore]
}

// If the folder of the content store cannot be read, only the edge is unready: the node starts,
// packs are served, fills are refused, and the store opens when the disk works again.
func TestUnreadableFolder(t *testing.T) {
	t.Parallel()
	h := newHost(t, echo)
	r := newRig(t, on(h)).start()
	x := r.want(h.name+"/x", "of x")
	r.stop()
	folder := filepath.Join(r.dir, "edge", "cas")
	// the symbolic link fails with ELOOP
	if err := errors.Join(os.Rename(folder, folder+".away"), os.Symlink(folder, folder)); err != nil {
		t.Fatal(err)
	}
	r.open() // fails the test if the start fails
	r.start()
	if r.shown() == "" {
		t.Error("readiness does not show it")
	}
	if _, err := r.e.Fill(t.Context(), fill.Request{URL: "https://" + h.name + "/y"}); !errors.Is(err, asset.ErrStore) {
		t.Errorf("a fill: %v", err)
	}
	if _, _, err := r.read(h.name + "/x"); err == nil {
		t.Error("what cannot be read is served")
	}
	if _, err := r.e.Packs().Rescan(t.Context()); err != nil {
		t.Errorf("packs: %v", err)
	}
	if err := errors.Join(os.Remove(folder), os.Rename(folder+".away", folder)); err != nil {
		t.Fatal(err)
	}
	until(t, "it opens", func() bool { return r.shown() == "" })
	if o := r.want(h.name+"/x", "of x"); o.Digest != x.Digest || o.Filled {
		t.Errorf("%+v", o)
	}
	r.want(h.name+"/y", "of y")
	r.sound()
}

// A fault of the content store leaves readiness when its cause has gone, without a fill.
func TestStoreHeals(t *testing.T) {
	t.Parallel()
	var fault atomic.Pointer[error]
	var free atomic.Int64
	free.Store(1 << 30)
	h := newHost(t, echo)
	r := newRig(t, on(h), func(r *rig) {
		r.faults = func(op string) error {
			if err := fault.Load(); err != nil && op == "place" {
				return *err
			}
			return nil
		}
	})
	r.free = func() (int64, error) { return free.Load(), nil }
	r.start()
	broken := error(syscall.EIO)
	for doc, tt := range map[string]struct{ set, clear func() }{
		"a disk that fails":   {func() { fault.Store(&broken) }, func() { fault.Store(nil) }},
		"a disk that is full": {func() { free.Store(0) }, func() { free.Store(1 << 30) }},
	} {
		tt.set()
		if _, _, err := r.read(h.name + "/" + doc[:6]); err == nil {
			t.Fatalf("%s: a fill works", doc)
		}
		if r.shown() == "" {
			t.Errorf("%s: readiness does not show it", doc)
		}
		r.e.Content().HealSoon()
		if _ = r.barrier(); r.shown() == "" {
			t.Errorf("%s: healed before its cause is gone", doc)
		}
		tt.clear()
		until(t, doc+" heals", func() bool {
			r.e.Content().HealSoon() // as the task metrics does, but more often
			return r.shown() == ""
		})
	}
	r.sound()
}

// The log reports lost events once in a while, with their number.
func TestLostEventsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := newRig(t, live, func(r *rig) { r.log = hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Warn}) })
		sub := r.e.Events().Subscribe(edge.TaskMetrics)
		defer sub.Close()
		for range 3 {
			for range edge.EventRing + 2 {
				r.e.Rejected("rate_limit")
			}
			r.e.LogEvents(sub)
		}
		if log := out.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "lagged=2") {
			t.Errorf("%s", log)
		}
		r.stop()
	})
}

// A slow reader of events loses the oldest ones, learns how many, and blocks no publisher.
func TestSlowReaderOfEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t, live)
	sub := r.e.Events().Subscribe(edge.TaskMetrics)
	defer sub.Close()
	for range edge.EventRing + 7 {
		r.e.Rejected("rate_limit")
	}
	if v, lagged, ok := sub.Next(); !ok || lagged != 7 || v.Kind != "reject" || v.Result != "rate_limit" {
		t.Errorf("%+v, %d lagged, %t", v, lagged, ok)
	}
	if n := r.count("bus_lagged_total", "bus", "events"); n != 7 {
		t.Errorf("%v counted", n)
	}
	if n := r.count("edge_rejects_total", "reason", "rate_limit"); n != edge.EventRing+7 {
		t.Errorf("%v rejects", n)
	}
	r.e.Rejected("bad_path") // has no series
	if n := r.count("edge_rejects_total"); n != edge.EventRing+7 {
		t.Errorf("%v rejects", n)
	}
}
