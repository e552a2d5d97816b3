package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/store"
)

// slowStore takes a second for a transaction.
type slowStore struct {
	Store
	runs [][]store.Placed
}

func (s *slowStore) Follow(_ context.Context, run []store.Placed) error {
	time.Sleep(time.Second)
	s.runs = append(s.runs, run)
	return nil
}

func (s *slowStore) KeepMembers(uint64, []byte) {}

// following runs the task follower of a node with a slow store while do runs.
func following(t *testing.T, do func(n *Node, s *slowStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &slowStore{}
		n := &Node{
			store: s, log: hclog.NewNullLogger(), ctx: ctx, deposed: make(chan struct{}),
			nonce:   func([]byte) ([16]byte, bool) { return [16]byte{}, false },
			backlog: newBacklog(flow.NewCatalog(obs.NewMetrics(), hclog.NewNullLogger())),
		}
		done := make(chan error, 1)
		go func() { done <- n.runFollower(ctx) }()
		do(n, s)
		cancel()
		<-done
	})
}

// entries returns n commands of size bytes from index on.
func entries(from uint64, n, size int) (logs []*raft.Log) {
	for i := range n {
		logs = append(logs, &raft.Log{
			Index: from + uint64(i), Term: 1, Type: raft.LogCommand, Data: make([]byte, size),
		})
	}
	return logs
}

// While a transaction is under way entries gather, and the next one takes all of them in order.
func TestFollowerGathers(t *testing.T) {
	following(t, func(n *Node, s *slowStore) {
		f := &fsm{n}
		for _, l := range entries(2, 5, 1) {
			f.Apply(l)
			synctest.Wait()
		}
		if !n.caughtUp() {
			t.Fatal("not caught up")
		}
		if len(s.runs) != 2 || len(s.runs[0]) != 1 || len(s.runs[1]) != 4 {
			t.Fatalf("transactions %v", s.runs)
		}
		for i, p := range s.runs[1] {
			if p.Index != uint64(3+i) {
				t.Errorf("entry %d at place %d", p.Index, i)
			}
		}
	})
}

// A full backlog makes raft wait: by entries, and by bytes, but for one entry that is larger.
func TestFullBacklog(t *testing.T) {
	for _, tt := range []struct {
		name string
		size int
		room int // entries that are taken while the first one is being written
	}{
		{"entries", 1, 1 + backlogEntries},
		{"bytes", backlogBytes / 4, 4},
		{"one large entry", 2 * backlogBytes, 1},
	} {
		following(t, func(n *Node, _ *slowStore) {
			f := &fsm{n}
			f.Apply(entries(2, 1, tt.size)[0])
			synctest.Wait()
			begun := time.Now()
			f.ApplyBatch(entries(3, tt.room-1, tt.size))
			if took := time.Since(begun); took != 0 {
				t.Errorf("%s: waits %v with room", tt.name, took)
			}
			f.ApplyBatch(entries(uint64(2+tt.room), 1, tt.size))
			if took := time.Since(begun); took != time.Second {
				t.Errorf("%s: waits %v without room", tt.name, took)
			}
		})
	}
}

// A barrier, a configuration and a truncation come after all entries before them are in the file.
func TestOrderOfTheBacklog(t *testing.T) {
	members := &raft.Log{Index: 3, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{})}
	barrier := &raft.Log{Index: 3, Term: 1, Type: raft.LogCommand}
	for name, do := range map[string]func(*fsm){
		"a barrier":       func(f *fsm) { f.Apply(barrier) },
		"a configuration": func(f *fsm) { f.Apply(members) },
		"a truncation":    func(f *fsm) { _, _ = f.Snapshot() },
	} {
		following(t, func(n *Node, s *slowStore) {
			f := &fsm{n}
			f.Apply(entries(2, 1, 1)[0])
			do(f)
			if len(s.runs) != 1 {
				t.Errorf("%s passes %d entries", name, n.backlog.entries.Load())
			}
		})
	}
}

// The end of a life, or a stop, ends every wait for the backlog, and nothing passes it.
func TestBacklogAtTheEnd(t *testing.T) {
	following(t, func(n *Node, s *slowStore) {
		f := &fsm{n}
		f.ApplyBatch(entries(2, 2, 1))
		synctest.Wait()
		n.end(ReasonHung, nil)
		if n.caughtUp() {
			t.Error("caught up")
		}
		if _, err := f.Snapshot(); err == nil {
			t.Error("a truncation after the end")
		}
		f.ApplyBatch(entries(4, backlogEntries+1, 1))
		for n.backlog.entries.Load() > 0 {
			<-n.backlog.less
		}
		if len(s.runs) != 1 {
			t.Errorf("%d transactions", len(s.runs))
		}
	})
}
