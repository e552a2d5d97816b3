package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Hub reads the log of the node that a follower follows, by its public routes. Its calls end within
// a bound of their own. Their errors mean that the hub was not reached or refused the call, except
// ErrNotFound and ErrPruned.
type Hub interface {
	URL() string
	PublicLog
	// Consistency returns a proof that the log of from versions is a prefix of that of to.
	Consistency(ctx context.Context, from, to uint64) (tlog.TreeProof, error)
	// Hear calls heard with the number of each version after one, as it is committed. It blocks
	// until the connection breaks or ctx ends, which is always an error.
	Hear(ctx context.Context, after uint64, heard func(version uint64)) error
}

// PublicLog reads the versions of a log, and the checkpoint over them, from another node.
type PublicLog interface {
	// Checkpoint returns the latest checkpoint, or ErrNotFound before the first.
	Checkpoint(ctx context.Context) ([]byte, error)
	// Entry and Payload return the exact bytes of a version, ErrNotFound beyond HEAD, or ErrPruned.
	Entry(ctx context.Context, version uint64) ([]byte, error)
	Payload(ctx context.Context, version uint64) ([]byte, error)
	// Horizon returns where the log begins.
	Horizon(ctx context.Context) (Horizon, error)
	// Items returns the descriptors of a version that is not pruned.
	Items(ctx context.Context, version uint64) ([]jsontext.Value, error)
	// Tile returns the hashes of a tile of the log, by its path, such as "0/000.p/5".
	Tile(ctx context.Context, path string) ([]byte, error)
}

// Pace of the follower.
const (
	followPoll = 30 * time.Second       // between two reads of the checkpoint if nothing is heard
	followSoon = 100 * time.Millisecond // the same while the hub is about to sign a version that was heard of
	followFor  = 5 * time.Second        // how long a hub is about to sign
	hearFirst  = time.Second            // pause before the stream is used again; it doubles up to followPoll
)

// follow is the part of the engine of a node that follows another.
type follow struct {
	hub     Hub
	genesis b3.Digest
	heard   *flow.Watch[heardVersion]
	fault   atomic.Pointer[FollowFault] // nil while the hub is believed
	lost    atomic.Pointer[string]      // why the last round did not end; nil if it did
}

// heardVersion is a version of the hub's event stream.
type heardVersion struct {
	version uint64
	at      time.Time
}

func (e *Engine) newFollow(hub Hub) *follow {
	genesis, _ := b3.Parse(e.boot.Follow.Genesis) // Validate has checked it
	return &follow{hub: hub, genesis: genesis, heard: flow.NewWatch[heardVersion](e.catalog, flow.Spec{
		Service: service, Name: "heard", Producers: []string{taskFollower}, Consumers: []string{taskFollower},
		Doc: "the newest version that the hub's event stream named; the follower reads up to it",
	}, heardVersion{})}
}

func (e *Engine) followTask() flow.Task {
	return flow.Task{
		Service:    service,
		Name:       taskFollower,
		Count:      1,
		Restart:    flow.Always,
		Background: true,
		Lanes:      []string{"store.work"},
		Doc:        "copies the log of the hub, verified; sole writer of HEAD here",
		Run:        e.runFollower,
	}
}

// follower is one run of the follower task.
type follower struct {
	*follow
	e          *Engine
	slice      uint64          // versions read at once
	keep       int             // bytes of verified versions that are kept until they are written
	seen       checkpoint.Tree // the high-water mark; the zero Tree before the first checkpoint
	begun      *judgment       // what the last round has read; nil: it ended, or the hub is not believed
	archived   uint64          // size of the last archived checkpoint
	archivedAt time.Time
}

func (e *Engine) newFollower() *follower {
	return &follower{follow: e.follow, e: e, slice: followSlice, keep: maxKept}
}

// runFollower copies the log of the hub. It alone moves HEAD on a follower.
func (e *Engine) runFollower(ctx context.Context) error {
	f := e.newFollower()
	if err := f.resume(ctx); err != nil {
		return f.stuck(err)
	}
	return flow.Fan(ctx, 2, func(ctx context.Context, leg int) error {
		if leg == 0 {
			return f.hear(ctx)
		}
		return f.run(ctx)
	})
}

// resume reads the high-water mark and the last archived checkpoint.
func (f *follower) resume(ctx context.Context) error {
	last := f.e.pub.Latest.Load()
	if last != nil {
		f.seen = last.Tree
	}
	err := f.e.View(ctx, func(r store.Reader) error {
		if size, _, known := tables.Checkpoints.Last(r); known {
			f.archived = size
		}
		// it was killed on the way to a checkpoint
		if _, note, pruned := tables.Retentions.Last(r); pruned && last == nil {
			f.seen = statedTree(note) // its signature was checked before it was written
		}
		return nil
	})
	if err != nil || f.e.mark.Path == "" {
		return err
	}
	raw, err := f.e.mark.Read()
	switch {
	case errors.Is(err, fs.ErrNotExist) && last != nil:
		return f.e.mark.Write(*last)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	mark, err := checkpoint.TreeOf(raw)
	if err != nil {
		return fmt.Errorf("%s: %w: remove it only if this is the newest copy of the file", f.e.mark.Path, err)
	}
	if mark.Size >= f.seen.Size {
		f.seen = mark
	}
	return nil
}

// hear follows the event stream of the hub until ctx ends. It opens a broken one again.
func (f *follower) hear(ctx context.Context) error {
	pause := hearFirst
	for ctx.Err() == nil {
		err := f.hub.Hear(ctx, f.e.Head().Head.Version, func(version uint64) {
			pause = hearFirst
			f.heard.Store(heardVersion{version, f.e.now()})
		})
		if ctx.Err() != nil {
			break
		}
		f.e.log.Debug("follow.stream_ended", "hub", f.hub.URL(), "reason", err.Error(), "again_in", pause.String())
		rest(ctx, pause, nil)
		pause = min(2*pause, followPoll)
	}
	return context.Cause(ctx)
}

// rest waits for d, or until early is closed or ctx ends.
func rest(ctx context.Context, d time.Duration, early <-chan struct{}) {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-ctx.Done():
	case <-early:
	case <-over.C:
	}
}

// run makes a round when the stream names a version, and at least each followPoll, with a rest of
// followSoon between two rounds, however often the stream names one. After a fault of the hub the
// rest is that of hearFirst, and it doubles with each further one, so that a bad hub soon causes no
// more rounds than a silent one.
func (f *follower) run(ctx context.Context) error {
	wary := hearFirst
	for {
		heard, newer := f.heard.Load()
		err := f.round(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if bad, ok := errors.AsType[*keepError](err); ok {
			return f.stuck(bad.error)
		}
		f.report(ctx, err)
		pause, least := followPoll, followSoon
		switch {
		case f.fault.Load() != nil:
			least, wary = wary, min(2*wary, followPoll)
		case err == nil && heard.version > f.e.Head().Head.Version && f.e.now().Sub(heard.at) < followFor:
			pause, wary = followSoon, hearFirst
		default:
			wary = hearFirst
		}
		rest(ctx, least, nil)
		rest(ctx, pause-least, newer)
	}
}

// keepError is an error of this node's own file or mark. It ends the run of the task.
type keepError struct{ error }

func (e *keepError) Unwrap() error { return e.error }

// stuck publishes an error of this node's own file or mark, and returns it.
func (f *follower) stuck(err error) error {
	text := "this node cannot go on: " + err.Error()
	f.lost.Store(&text)
	return err
}

// report publishes the result of a round. A fault of the hub, and its end, get a row of the store's
// audit chain.
func (f *follower) report(ctx context.Context, err error) {
	f.lost.Store(nil)
	fault, bad := errors.AsType[*FollowFault](err)
	if err != nil && !bad {
		text := err.Error()
		f.lost.Store(&text)
		f.e.log.Debug("follow.unanswered", "hub", f.hub.URL(), "reason", text)
		return // it says nothing about the log
	}
	was := f.fault.Swap(fault)
	switch {
	case was == nil && fault == nil, was != nil && fault != nil && was.State == fault.State:
		return
	case fault != nil:
		f.e.log.Error("follow.fault", "hub", f.hub.URL(), "state", fault.State, "reason", fault.Detail,
			"effect", "the last sound version is served")
	default:
		f.e.log.Info("follow.sound", "hub", f.hub.URL())
	}
	note := tables.NoteFollow{Note: f.e.followEvent(fault), Fault: fault}
	if _, err := store.Commit(ctx, f.e.store, store.Work, note); err != nil && ctx.Err() == nil {
		f.e.log.Warn("follow.unnoted", "reason", err.Error())
	}
}
