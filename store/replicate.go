package store

import (
	"context"
	"errors"
	"fmt"

	"ronbox/appliance/b3"
)

// Errors of a file that belongs to a cluster.
var (
	ErrNotLeader = errors.New("store: another node leads")            // nothing was written
	ErrClustered = errors.New("store: the file belongs to a cluster") // opened for writing without a Replicator
	ErrDiverged  = errors.New("store: an entry does not follow the file")
)

// Place is the position of an entry in the log of a cluster.
type Place struct {
	Index uint64
	Term  uint64
}

// Applied is the last entry that is in the file.
type Applied struct {
	Place
	Chain  b3.Digest // hash chain of the entries
	Origin string    // "" if a group or Follow wrote it, "init" or "install" if SetMembership did
}

// Replicator is the log of a cluster. The committer calls it.
type Replicator interface {
	// Propose returns once e is in the log of a quorum and every entry before it is applied. A
	// NothingError means that no log has e. After any other error a log may have it.
	Propose(ctx context.Context, e []byte) (Place, error)
	// Applied is called once for each Place that Propose returned: the group is in the file, or the
	// store has failed.
	Applied(Place)
}

// NothingError is returned by Propose if the entry is in no log.
type NothingError struct{ Cause error }

func (e *NothingError) Error() string { return fmt.Sprintf("not proposed: %v", e.Cause) }

// Unwrap returns the cause.
func (e *NothingError) Unwrap() error { return e.Cause }

// Placed is an entry of a quorum and its place. Without Entry it only moves the place.
type Placed struct {
	Place
	Entry []byte
}

// Follow applies entries in one transaction.
func (s *Store) Follow(ctx context.Context, es []Placed) error { return errors.ErrUnsupported }

// Lead lets the store accept commands.
func (s *Store) Lead() error { return errors.ErrUnsupported }

// Deposed is closed once a proposal has failed.
func (s *Store) Deposed() <-chan struct{} { return s.deposed }

// EntryNonce returns the random number that identifies an entry.
func EntryNonce(e []byte) (nonce [16]byte, ok bool) { return nonce, false }
