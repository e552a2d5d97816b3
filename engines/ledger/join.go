package ledger

import (
	"context"
	"errors"

	"ronbox/store"
)

// ending is where an op's result is; out nil is nowhere yet.
type ending struct {
	out   *posted
	index int
}

// join finds out what became of ops that an earlier call has left on their way. nil is none; an op whose commit was taken back is to be queued
// anew.
func (l *Local) join(ctx context.Context, actions []action) ([]ending, error) {
	if l.left.size.Load() == 0 {
		return nil, nil
	}
	var found []stray
	for i := range actions {
		if s, ok := l.left.find(&actions[i]); ok {
			if found == nil {
				found = make([]stray, len(actions))
			}
			found[i] = s
		}
	}
	if found == nil {
		return nil, nil
	}
	err := l.knock(ctx)
	done := make([]ending, len(actions))
	for i, s := range found {
		if s.s == nil {
			continue
		}
		out, over := s.s.outcome()
		if !over && err != nil {
			return nil, &UnavailableError{Unknown: true, Cause: err}
		}
		done[i] = ending{out, s.s.first + s.index}
	}
	return done, nil
}

// knock is a command that does nothing, not even a sync. It comes in a later group than what was in the committer's hand before it, so with its
// answer that is over, however it went.
type knock struct{}

var errNobody = errors.New("ledger: nobody is there")

// Kind names the command.
func (knock) Kind() string { return "ledger.knock/1" }

// Size is what the command weighs in its group.
func (knock) Size() int { return 1 }

// Apply refuses, so that nothing is written.
func (knock) Apply(store.Reader, store.Stamp, *store.Writes) (struct{}, error) {
	return struct{}{}, errNobody
}

// knock waits until what the committer has in hand is over. An error tells that it may not be.
func (l *Local) knock(ctx context.Context) error {
	_, err := store.Commit(ctx, l.store, store.Work, knock{})
	if err == errNobody {
		return nil
	}
	return err
}
