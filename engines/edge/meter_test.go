package edge_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/edgetest"
	"ronbox/engines/edge/meter"
	"ronbox/engines/edge/near"
	"ronbox/engines/fleet/usage"
	"ronbox/store"
)

const epochLength = time.Hour

// meterKey signs the statements of the rigs.
var meterKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

// metered lets a rig meter. Its clock is an hour ahead of the wall clock, at the start of an epoch.
func metered(r *rig) {
	r.fleet = &edge.FleetConfig{
		Signer: func() (string, ed25519.PrivateKey) { return "12D3KooWself", meterKey },
	}
	next := time.Now().Add(epochLength).Truncate(epochLength)
	r.clock.Store(int64(time.Until(next) + time.Second))
}

// object returns the digest of an object.
func object(name string) b3.Digest { return b3.Sum([]byte(name)) }

// attested waits until an object is counted, lets the epoch end, and its grace, and returns its
// statement. The running task writes both.
func (r *rig) attested(epoch uint64) usage.Statement {
	r.t.Helper()
	r.clock.Add(int64(2 * time.Minute)) // so that the task writes what waits
	until(r.t, "an object is counted", func() (ok bool) {
		err := r.store.View(context.Background(), func(rd store.Reader) error {
			for range store.Subs(rd, meter.Buckets()[1]) {
				ok = true
			}
			return nil
		})
		return err == nil && ok
	})
	r.clock.Add(int64(epochLength + usage.Grace(epochLength)))
	var raw []byte
	until(r.t, "the statement is made", func() (ok bool) {
		var err error
		raw, err = r.e.Statement(context.Background(), epoch)
		return err == nil
	})
	s, err := usage.Open(raw, meterKey.Public().(ed25519.PublicKey))
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// Without a signer there is no task, no bucket and no statement.
func TestNoMeter(t *testing.T) {
	t.Parallel()
	for _, r := range []*rig{newRig(t), newRig(t, inFleet())} {
		for _, task := range r.e.Tasks() {
			if task.Name == meter.TaskName {
				t.Error("there is a task")
			}
		}
		r.e.Meter().Received("node/a", object("1"), 1, false)
		if _, err := r.e.Statement(t.Context(), 1); r.e.Meter() != nil || !errors.Is(err, meter.ErrNoStatement) {
			t.Errorf("%v", err)
		}
		_, err := store.Commit(t.Context(), r.store, store.Work, writeUsage{})
		if !errors.Is(err, store.ErrInternal) {
			t.Errorf("a bucket is declared: %v", err)
		}
	}
}

// writeUsage writes a row of a bucket of usage.
type writeUsage struct{}

func (writeUsage) Kind() string { return "edge.write_usage/1" }

func (writeUsage) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	w.Put(meter.Buckets()[0], []byte("x"), []byte("y"))
	return struct{}{}, nil
}

// What is fetched from another node is counted, once for an evict-and-fetch loop. Bytes with another
// hash are not counted, for the node that sent them or for any other.
func TestFetchIsCounted(t *testing.T) {
	t.Parallel()
	a, liar := edgetest.NewStation(t, "a", "one"), edgetest.NewStation(t, "b")
	liar.Answer = func(w http.ResponseWriter, _ *http.Request) { serve(w, "lies") }
	r := newRig(t, metered)
	r.start()
	v := edgetest.View(1, a, liar)
	v.Epoch = epochLength
	r.setFleet(v)
	n := usage.EpochOf(r.now(), epochLength)
	for range 3 {
		one := object("one")
		if got, err := r.fetch(one, near.Hint{Owner: "node/a"}); got != "one" {
			t.Fatal(got, err)
		}
		if _, err := r.e.Keep(t.Context(), asset.Remove, []string{one.String()}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.fetch(object("two"), near.Hint{Owner: "node/b"}); err == nil || liar.Asked.Load() == 0 {
		t.Fatalf("lies are stored: %v", err)
	}
	if s := r.attested(n); len(s.Rows) != 1 || s.Rows[0] != (usage.Row{Node: "node/a", Asked: 3, Objects: 1}) {
		t.Errorf("%+v", s)
	}
}

// A node counts for the bytes that it sent, and not for those that another one had sent before.
func TestResumedFetchIsCounted(t *testing.T) {
	t.Parallel()
	body := edgetest.Loud("body", 200_000)
	first, second := edgetest.NewStation(t, "a", body), edgetest.NewStation(t, "b", body)
	first.Answer = func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("ETag", `"`+object(body).String()+`"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write([]byte(body[:150_000]))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	r := newRig(t, metered)
	r.start()
	v := edgetest.View(1, first, second)
	v.Epoch = epochLength
	r.setFleet(v)
	n := usage.EpochOf(r.now(), epochLength)
	if got, err := r.fetch(object(body), near.Hint{Owner: first.ID}); got != body {
		t.Fatal(len(got), err)
	}
	s := r.attested(n)
	if len(s.Rows) != 1 || s.Rows[0].Node != second.ID || s.Rows[0].Bytes() == 0 ||
		s.Rows[0].Bytes() >= uint64(len(body)) {
		t.Errorf("%+v", s)
	}
}
