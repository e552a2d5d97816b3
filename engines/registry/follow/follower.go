package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/highwater"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/views"
	"ronbox/store"
)

// Hub reads the log of the node that a follower follows, by its public routes. Its calls end within
// a bound of their own. Their errors mean that the hub was not reached or refused the call, except
// document.ErrNotFound and document.ErrPruned.
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
	// Checkpoint returns the latest checkpoint, or document.ErrNotFound before the first.
	Checkpoint(ctx context.Context) ([]byte, error)
	// Entry and Payload return the exact bytes of a version, document.ErrNotFound beyond HEAD, or
	// document.ErrPruned.
	Entry(ctx context.Context, version uint64) ([]byte, error)
	Payload(ctx context.Context, version uint64) ([]byte, error)
	// Horizon returns where the log begins.
	Horizon(ctx context.Context) (document.Horizon, error)
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

// Deps holds the dependencies of a Follower.
type Deps struct {
	Catalog   *flow.Catalog
	Store     *store.Store
	Reader    *views.Reader
	Published *tables.Published
	Mark      highwater.Mark
	Log       hclog.Logger
	Clock     Clock
	Keeper    Keeper
}

// Clock holds the clocks of a follower.
type Clock struct {
	Now  func() time.Time // of what is stored
	Wall func() time.Time // of what others sign
}

// Keeper publishes what the follower has written.
type Keeper interface {
	// Rule returns the limits in force.
	Rule() Rule
	// Sound returns the reason why the log here must not be extended, or nil.
	Sound() error
	// Publish makes a synced step visible. It runs in the committer and must not wait.
	Publish(Step)
	// Begun is called after the first version.
	Begun()
	// Checkpointed is called after each checkpoint. Archived reports whether it is kept for ever.
	Checkpointed(s checkpoint.Signed, archived bool)
}

// Rule holds the limits of a follower. A change counts from the next round on.
type Rule struct {
	MaxAge        time.Duration // of the newest checkpoint of a hub that is relied on
	ArchiveEvery  time.Duration // between archived checkpoints, or
	EveryVersions uint64        // after this many
	Slice         uint64        // versions read at once; 0: 32
	Keep          int           // bytes of verified versions that wait in memory; 0: 32 MiB
}

// Step describes the change that a command of the follower made.
type Step struct {
	Next   *tables.State
	Tree   tables.TreeRow
	Note   *checkpoint.Signed // nil: more versions follow
	Events []document.Update
	Took   time.Duration
}

// Follower copies the log of another node. Its methods are safe for concurrent use.
type Follower struct {
	deps    Deps
	hub     Hub
	genesis b3.Digest
	heard   *flow.Watch[heardVersion]
	fault   atomic.Pointer[tables.FollowFault] // nil while the hub is believed
	lost    atomic.Pointer[string]             // why the last round did not end; nil if it did
}

// heardVersion is a version of the hub's event stream.
type heardVersion struct {
	version uint64
	at      time.Time
}

// New builds a follower of the log that begins with genesis. It starts no task.
func New(hub Hub, genesis b3.Digest, d Deps) *Follower {
	return &Follower{deps: d, hub: hub, genesis: genesis, heard: flow.NewWatch[heardVersion](d.Catalog, flow.Spec{
		Service: tables.Service, Name: "heard", Producers: []string{TaskName}, Consumers: []string{TaskName},
		Doc: "the newest version that the hub's event stream named; the follower reads up to it",
	}, heardVersion{})}
}

// Of returns a follower of the same log that reads it from another hub. It has no task.
func (f *Follower) Of(hub Hub) *Follower {
	return &Follower{deps: f.deps, hub: hub, genesis: f.genesis}
}

// URL returns the URL of the hub.
func (f *Follower) URL() string { return f.hub.URL() }

// Genesis returns the payload_b3 of version 1.
func (f *Follower) Genesis() b3.Digest { return f.genesis }

// Restore takes up a fault of the hub that was not over at the stop.
func (f *Follower) Restore(fault *tables.FollowFault) { f.fault.Store(fault) }

// Task returns the task of the follower.
func (f *Follower) Task() flow.Task {
	return flow.Task{
		Service:    tables.Service,
		Name:       TaskName,
		Count:      1,
		Restart:    flow.Always,
		Background: true,
		Lanes:      []string{"store.work"},
		Doc:        "copies the log of the hub, verified; sole writer of HEAD here",
		Run:        f.runFollower,
	}
}

func (f *Follower) head() *tables.HeadView { return f.deps.Published.Head() }

// Run is one run of the follower task.
type Run struct {
	*Follower
	seen       checkpoint.Tree // the high-water mark; the zero Tree before the first checkpoint
	begun      *judgment       // what the last round has read; nil: it ended, or the hub is not believed
	archived   uint64          // size of the last archived checkpoint
	archivedAt time.Time
}

// Begin returns a run. It reads the high-water mark and the last archived checkpoint.
func (f *Follower) Begin(ctx context.Context) (*Run, error) {
	r := &Run{Follower: f}
	return r, r.resume(ctx)
}

// slice returns the number of versions that are read at once.
func (f *Run) slice() uint64 { return cmp.Or(f.deps.Keeper.Rule().Slice, followSlice) }

// runFollower copies the log of the hub. It alone moves HEAD on a follower.
func (f *Follower) runFollower(ctx context.Context) error {
	r, err := f.Begin(ctx)
	if err != nil {
		return r.stuck(err)
	}
	return flow.Fan(ctx, 2, func(ctx context.Context, leg int) error {
		if leg == 0 {
			return r.hear(ctx)
		}
		return r.run(ctx)
	})
}

// resume reads the high-water mark and the last archived checkpoint.
func (f *Run) resume(ctx context.Context) error {
	last := f.deps.Published.Latest.Load()
	if last != nil {
		f.seen = last.Tree
	}
	err := f.deps.Reader.View(ctx, func(r store.Reader) error {
		if size, _, known := tables.Checkpoints.Last(r); known {
			f.archived = size
		}
		// it was killed on the way to a checkpoint
		if _, note, pruned := tables.Retentions.Last(r); pruned && last == nil {
			f.seen = statedTree(note) // its signature was checked before it was written
		}
		return nil
	})
	if err != nil || f.deps.Mark.Path == "" {
		return err
	}
	raw, err := f.deps.Mark.Read()
	switch {
	case errors.Is(err, fs.ErrNotExist) && last != nil:
		return f.deps.Mark.Write(*last)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	mark, err := checkpoint.TreeOf(raw)
	if err != nil {
		return fmt.Errorf("%s: %w: remove it only if this is the newest copy of the file", f.deps.Mark.Path, err)
	}
	if mark.Size >= f.seen.Size {
		f.seen = mark
	}
	return nil
}

// hear follows the event stream of the hub until ctx ends. It opens a broken one again.
func (f *Run) hear(ctx context.Context) error {
	pause := hearFirst
	for ctx.Err() == nil {
		err := f.hub.Hear(ctx, f.head().Head.Version, func(version uint64) {
			pause = hearFirst
			f.heard.Store(heardVersion{version, f.deps.Clock.Now()})
		})
		if ctx.Err() != nil {
			break
		}
		f.deps.Log.Debug("follow.stream_ended", "hub", f.hub.URL(), "reason", err.Error(), "again_in", pause.String())
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
func (f *Run) run(ctx context.Context) error {
	wary := hearFirst
	for {
		heard, newer := f.heard.Load()
		err := f.Try(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if bad, ok := errors.AsType[*keepError](err); ok {
			return bad.error
		}
		pause, least := followPoll, followSoon
		switch {
		case f.fault.Load() != nil:
			least, wary = wary, min(2*wary, followPoll)
		case err == nil && heard.version > f.head().Head.Version && f.deps.Clock.Now().Sub(heard.at) < followFor:
			pause, wary = followSoon, hearFirst
		default:
			wary = hearFirst
		}
		rest(ctx, least, nil)
		rest(ctx, pause-least, newer)
	}
}

// Try makes a round and publishes its result, unless ctx has ended. It returns the error of the
// round.
func (f *Run) Try(ctx context.Context) error {
	err := f.Round(ctx)
	if ctx.Err() != nil {
		return err
	}
	if bad, ok := errors.AsType[*keepError](err); ok {
		_ = f.stuck(bad.error)
		return err
	}
	f.report(ctx, err)
	return err
}

// keepError is an error of this node's own file or mark. It ends the run of the task.
type keepError struct{ error }

func (e *keepError) Unwrap() error { return e.error }

// stuck publishes an error of this node's own file or mark, and returns it.
func (f *Run) stuck(err error) error {
	text := "this node cannot go on: " + err.Error()
	f.lost.Store(&text)
	return err
}

// report publishes the result of a round. A fault of the hub, and its end, get a row of the store's
// audit chain.
func (f *Run) report(ctx context.Context, err error) {
	f.lost.Store(nil)
	fault, bad := errors.AsType[*tables.FollowFault](err)
	if err != nil && !bad {
		text := err.Error()
		f.lost.Store(&text)
		f.deps.Log.Debug("follow.unanswered", "hub", f.hub.URL(), "reason", text)
		return // it says nothing about the log
	}
	was := f.fault.Swap(fault)
	switch {
	case was == nil && fault == nil, was != nil && fault != nil && was.State == fault.State:
		return
	case fault != nil:
		f.deps.Log.Error("follow.fault", "hub", f.hub.URL(), "state", fault.State, "reason", fault.Detail,
			"effect", "the last sound version is served")
	default:
		f.deps.Log.Info("follow.sound", "hub", f.hub.URL())
	}
	note := tables.NoteFollow{Note: f.event(fault), Fault: fault}
	if _, err := store.Commit(ctx, f.deps.Store, store.Work, note); err != nil && ctx.Err() == nil {
		f.deps.Log.Warn("follow.unnoted", "reason", err.Error())
	}
}

// TaskName is the name of the task of a node that follows another.
const TaskName = "follower"
