package storetest_test

import (
	"context"
	"errors"
	"testing"

	"ronbox/appliance/flow"
	"ronbox/store"
	"ronbox/store/storetest"
)

// openMember opens a store in memory with a running committer.
func openMember(t *testing.T, log store.Replicator) *store.Store {
	t.Helper()
	memory := store.DefaultAmnesiaConfig()
	s := store.New(store.DefaultConfig(), store.Options{Memory: &memory, Replicator: log})
	s.Declare("any", bucket)
	if err := errors.Join(s.Open(t.Context()), s.Prepare(t.Context())); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Tasks()[0].Run(context.Background()) }()
	t.Cleanup(func() {
		s.CloseLanes()
		end := <-done
		if errors.Is(end, flow.ErrOver) {
			end = nil // it was deposed
		}
		if err := errors.Join(end, s.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// The entries of a leader make another store equal. A refused proposal ends the leader.
func TestLog(t *testing.T) {
	log := &storetest.Log{}
	leader, follower := openMember(t, log), openMember(t, &storetest.Log{})
	if err := leader.Lead(); err != nil {
		t.Fatal(err)
	}
	for want := range uint64(3) {
		if n, err := store.Commit(t.Context(), leader, store.Work, count{}); err != nil || n != want+1 {
			t.Fatal(n, err)
		}
	}
	es := log.Entries()
	if err := follower.Follow(t.Context(), es); err != nil {
		t.Fatal(err)
	}
	if len(es) != 3 || leader.Applied() != follower.Applied() || follower.Info().AuditHead != leader.Info().AuditHead {
		t.Errorf("%d entries, leader at %+v, follower at %+v", len(es), leader.Applied(), follower.Applied())
	}
	log.Refuse(func([]byte) error { return &store.NothingError{Cause: errOdd} })
	if _, err := store.Commit(t.Context(), leader, store.Work, count{}); !errors.Is(err, store.ErrNotLeader) {
		t.Error(err)
	}
	<-leader.Deposed()
	if len(log.Entries()) != 3 {
		t.Error("the log has an entry that it refused")
	}
}
