package pipeline_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"

	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/pipeline"
	"ronbox/engines/registry/registrytest"
)

// prepared returns a stack of up to 8 approved proposals of about 1 KiB each, made outside the
// measured time.
func prepared(r *registrytest.Rig, s registrytest.Signers, n, round int) []document.Proposed {
	r.T.Helper()
	out := make([]document.Proposed, 0, n)
	prev, version := r.Engine.Head().Head.PayloadB3, r.Engine.Head().Head.Version
	for i := range n {
		version++
		draft := fmt.Sprintf(
			`{"schema_version":"1.0.0","version":%d,"prev_hash":%q,"mode":"delta","put":[{"id":"r%d.i%d","kind":"service","meta":{"note":%q}}]}`,
			version,
			prev,
			round,
			i,
			strings.Repeat("x", 600),
		)
		p, err := r.Engine.Propose(r.Ctx(), alice, []byte(draft), "", "")
		if err != nil {
			r.T.Fatal(err)
		}
		r.Approve(p, s.Keys[:s.Threshold]...)
		out, prev = append(out, p), p.PayloadB3
	}
	return out
}

// One client commits approved proposals: an engine call, two fdatasyncs, the quorum verified again.
func BenchmarkCommit(b *testing.B) {
	for _, m := range []int{1, 3} {
		b.Run(fmt.Sprintf("M=%d", m), func(b *testing.B) {
			r, s := registrytest.New(b).Start(), newSigners(m, m)
			r.Genesis(s)
			var stack []document.Proposed
			for i := 0; b.Loop(); i++ {
				if len(stack) == 0 {
					b.StopTimer()
					stack = prepared(r, s, 8, i)
					b.StartTimer()
				}
				r.Commit(stack[0])
				stack = stack[1:]
			}
		})
	}
}

// The same over a large set: the cost of a version depends on its changes, not on the size of the
// set.
func BenchmarkCommitLarge(b *testing.B) {
	for _, items := range []int{7_600, 50_000} {
		b.Run(fmt.Sprintf("items=%d", items), func(b *testing.B) {
			r, s := registrytest.New(b).Start(), newSigners(3, 3)
			r.Genesis(s)
			fill(r, s, items)
			var stack []document.Proposed
			for i := 0; b.Loop(); i++ {
				if len(stack) == 0 {
					b.StopTimer()
					stack = prepared(r, s, 8, i)
					b.StartTimer()
				}
				r.Commit(stack[0])
				stack = stack[1:]
			}
		})
	}
}

// fill commits n small items, in versions below the bound of a payload.
func fill(r *registrytest.Rig, s registrytest.Signers, n int) {
	r.T.Helper()
	for at := 0; at < n; {
		draft := fmt.Appendf(nil, `{"schema_version":"1.0.0","version":%d,"mode":"delta","put":[`,
			r.Engine.Head().Head.Version+1)
		for sep := ""; at < n && len(draft) < 900_000; sep = "," {
			draft = fmt.Appendf(draft, `%s{"id":"f%06d","kind":"service","meta":{}}`, sep, at)
			at++
		}
		p, err := r.Engine.Propose(r.Ctx(), alice, append(draft, `]}`...), "", "")
		if err != nil {
			r.T.Fatal(err)
		}
		r.Approve(p, s.Keys...)
		r.Commit(p)
	}
}

// The rows of a commit with three approvals, each written by a bare transaction.
func BenchmarkRawUpdate(b *testing.B) {
	db, err := bolt.Open(filepath.Join(b.TempDir(), "raw.db"), 0o600, &bolt.Options{FreelistType: bolt.FreelistMapType})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	update := func(fn func(put func(bucket string, key, value int), drop func(bucket string, key int))) {
		if err := db.Update(func(tx *bolt.Tx) (err error) {
			bucket := func(name string) *bolt.Bucket {
				rows, e := tx.CreateBucketIfNotExists([]byte(name))
				err = errors.Join(err, e)
				return rows
			}
			fn(func(name string, key, value int) {
				err = errors.Join(err, bucket(name).Put(fmt.Appendf(nil, "%016d", key), make([]byte, value)))
			}, func(name string, key int) {
				err = errors.Join(err, bucket(name).Delete(fmt.Appendf(nil, "%016d", key)))
			})
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
	for i := 0; b.Loop(); i++ {
		if i%8 == 0 {
			b.StopTimer()
			update(func(put func(string, int, int), _ func(string, int)) {
				for n := i; n < i+8; n++ {
					put("prop", n, 1300)
					put("prop_exp", n, 0)
					for a := range 3 {
						put("appr", 4*n+a, 220)
					}
				}
			})
			b.StartTimer()
		}
		update(func(put func(string, int, int), drop func(string, int)) {
			put("entry", i, 1500)
			put("payload", i, 1100)
			put("done", i, 140)
			put("audit", i, 600)
			put("meta", 0, 130)
			put("meta", 1, 50)
			put("position", 0, 56)
			drop("prop", i)
			drop("prop_exp", i)
			for a := range 3 {
				drop("appr", 4*i+a)
			}
		})
	}
}

// Propose, approve and commit in sequence: the latency of a single user.
func BenchmarkProposeToCommit(b *testing.B) {
	r, s := registrytest.New(b).Start(), newSigners(1, 1)
	r.Genesis(s)
	for i := 0; b.Loop(); i++ {
		r.Commit(prepared(r, s, 1, i)[0])
	}
}

// 64 clients approve at once: the pipeline and the store share each sync among them.
func BenchmarkApprove64(b *testing.B) {
	const clients = 64
	r, s := registrytest.New(b).Start(), newSigners(clients, clients)
	r.Genesis(s)
	for round := 0; b.Loop(); round++ {
		b.StopTimer()
		p, err := r.Engine.Propose(r.Ctx(), engines.Actor{CapID: fmt.Sprint(round)}, delta(2, fmt.Sprintf("p%d", round)), "",
			"")
		if err != nil {
			b.Fatal(err)
		}
		given := s.Sign(p.PayloadB3, r.Now())
		b.StartTimer()
		var wg sync.WaitGroup
		for _, a := range given {
			wg.Go(func() {
				if _, err := r.Engine.Approve(r.Ctx(), alice, p.ID, a, ""); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		if err := r.Engine.Withdraw(r.Ctx(), engines.Actor{CapID: fmt.Sprint(round)}, p.ID, ""); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.N*clients)/b.Elapsed().Seconds(), "approvals/s")
}

// A stack of eight, its commits in flight together, in order.
func BenchmarkCommitStack8(b *testing.B) {
	r, s := registrytest.New(b).Start(), newSigners(1, 1)
	r.Genesis(s)
	for round := 0; b.Loop(); round++ {
		b.StopTimer()
		stack := prepared(r, s, 8, round)
		jobs := make([]*pipeline.Job, len(stack))
		for i, p := range stack {
			jobs[i] = pipeline.NewJob(r.Ctx(), pipeline.CommitOf(mustID(p.ID)), r.Now())
		}
		b.StartTimer()
		for _, j := range jobs {
			if err := r.Engine.Approving().TrySend(j); err != nil {
				b.Fatal(err)
			}
		}
		for _, j := range jobs {
			if _, err := j.Reply().Wait(r.Ctx()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.N*8)/b.Elapsed().Seconds(), "commits/s")
}

func BenchmarkHead(b *testing.B) {
	r := registrytest.New(b).Start()
	r.Genesis(newSigners(1, 1))
	for b.Loop() {
		if len(r.Engine.Head().JSON) == 0 {
			b.Fatal("no head")
		}
	}
}
