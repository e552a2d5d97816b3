package ledger_test

import (
	"context"
	"errors"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/store"
)

// lost checks that err reports an unknown outcome, because the op may be in the file.
func lost(t *testing.T, what string, err error) {
	t.Helper()
	var gone *ledger.UnavailableError
	if !errors.As(err, &gone) || !gone.Unknown || !errors.Is(err, store.ErrPoisoned) {
		t.Errorf("%s: %v, want that it is not known", what, err)
	}
}

// If the store fails while a group reaches the file, its callers get an unknown outcome. A retry
// gets the same answer, whether or not the first caller waited.
func TestRetryOfTheLost(t *testing.T) {
	once := ledger.Once{Domain: "test", ID: "1"}
	for _, tt := range []struct {
		name string
		call func(l *ledger.Local, ctx context.Context) error
	}{
		{"an op with a key", func(l *ledger.Local, ctx context.Context) error {
			_, err := l.Commit(ctx, []ledger.Op{keyed(issue("alice", 1, 1), "k")})
			return err
		}},
		{"a settlement", func(l *ledger.Local, ctx context.Context) error {
			_, err := l.Settle(ctx, once, []ledger.Op{issue("alice", 1, 1)})
			return err
		}},
	} {
		r := newRig(t, nil).declare("ron")
		r.groups.dies.Store(true)
		lost(t, tt.name, tt.call(r.l, r.ctx()))
		<-r.store.Failed()
		lost(t, tt.name+", again", tt.call(r.l, r.ctx()))
	}
}

// If the caller of a settlement leaves before the store fails, its outcome is unknown, too.
func TestLostSettlement(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	settle := func(ctx context.Context) error {
		_, err := r.l.Settle(ctx, ledger.Once{Domain: "test", ID: "1"}, []ledger.Op{issue("alice", 1, 1)})
		return err
	}
	first, second := newStop(), newStop()
	r.hold(first)
	<-first.in
	ctx, cancel := context.WithCancel(r.ctx())
	gone := make(chan error, 1)
	r.bg.Go(func() { gone <- settle(ctx) })
	waitFor(t, func() bool { return r.backlog() == 1 })
	r.hold(second)
	waitFor(t, func() bool { return r.backlog() == 2 })
	close(first.out)
	<-second.in
	cancel()
	var left *ledger.UnavailableError
	if err := <-gone; !errors.As(err, &left) || !left.Unknown {
		t.Errorf("the caller that left: %v", err)
	}
	r.groups.dies.Store(true)
	close(second.out)
	<-r.store.Failed()
	lost(t, "again", settle(r.ctx()))
}
