package edge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/cas"
	"ronbox/store"
)

// writeJob is one change of the content store: one of temp, aside, need and mend is set.
type writeJob struct {
	temp  *cas.Temp // sealed, to be installed for row; the writer's from now on
	row   Stored
	aside b3.Digest   // an object that a reader has met corrupt, to be set aside
	bad   fs.FileInfo // the file of aside that was read; nil: it is read again
	need  int64       // bytes that room is to be made for
	mend  bool        // rows that do not read are to be dropped
	reply *flow.Reply[struct{}]
}

// Bounds of the writer.
const (
	writeBurst  = 64               // objects that are installed together, so that they share a sync
	evictBurst  = 256              // URLs that one command drops
	writeWithin = 20 * time.Second // that a worker waits; a commit over 2 s is reported as slow
)

// write hands a change, with its temp, to the writer and waits for it.
func (e *Engine) write(ctx context.Context, j *writeJob) error {
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	j.reply = flow.NewReply[struct{}]()
	if err := e.writes.Send(ctx, j); err != nil {
		j.drop()
		return err
	}
	_, err := j.reply.Wait(ctx)
	return err
}

func (j *writeJob) drop() {
	if j.temp != nil {
		j.temp.Drop()
	}
}

// end answers a job.
func (j *writeJob) end(err error) {
	if err != nil {
		j.drop()
	}
	j.reply.Settle(struct{}{}, err)
}

// runWriter does what changes the content store, in bursts.
func (e *Engine) runWriter(ctx context.Context) error {
	for {
		j, err := e.writes.Recv(ctx)
		if err != nil {
			return ignore(err, flow.ErrClosed) // drained
		}
		e.writeBurst(ctx, j)
	}
}

// writeBurst does j and what waits behind it. Each is answered, whatever happens.
func (e *Engine) writeBurst(ctx context.Context, j *writeJob) {
	var installs []*writeJob
	defer func() {
		for _, j := range installs { // after a panic; else they are answered
			j.reply.Fail(flow.ErrUnknown)
		}
	}()
	for more := true; more && j != nil; {
		switch {
		case !j.reply.Claim():
			j.drop()
		case j.temp != nil:
			installs = append(installs, j)
		default:
			e.change(ctx, j)
		}
		if more = len(installs) < writeBurst; more {
			select {
			case j = <-e.writes.C(): // nil when it is closed
			default:
				more = false
			}
		}
	}
	e.install(ctx, installs)
}

// change does a job that installs nothing.
func (e *Engine) change(ctx context.Context, j *writeJob) {
	defer j.reply.Fail(flow.ErrUnknown) // answers for a panic
	switch {
	case j.mend:
		j.end(e.mend(ctx))
	case j.need > 0:
		j.end(e.mending(ctx, func() error { return e.makeRoom(ctx, j.need, 0) }))
	default:
		j.end(e.mending(ctx, func() error { return e.quarantine(ctx, j) }))
	}
}

// mending calls do, and if that meets a row that does not read, drops such rows and calls it again.
func (e *Engine) mending(ctx context.Context, do func() error) error {
	err := do()
	if errors.Is(err, store.ErrCorrupt) && e.mend(ctx) == nil {
		err = do()
	}
	return err
}

// quarantine takes an object out of the content store, unless it has been brought anew since a reader has met it corrupt. The rows of one whose file
// is gone are dropped.
func (e *Engine) quarantine(ctx context.Context, j *writeJob) error {
	name := j.aside
	b, err := find(ctx, e, blobs, name)
	if err != nil {
		return ignore(err, ErrNotFound)
	}
	if j.bad == nil {
		err = e.stillBad(name, b.Size)
	} else if e.cas.Holds(name, j.bad) {
		err = cas.ErrCorrupt
	}
	if !errors.Is(err, cas.ErrCorrupt) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	e.sums.forget(name)
	var keys []b3.Digest
	err = scan(ctx, e, paths, func(key b3.Digest, row Stored) error {
		if row.Digest == name {
			keys = append(keys, key)
		}
		return nil
	})
	var all change
	for burst := range slices.Chunk(keys, evictBurst) {
		var done change
		if err == nil {
			done, err = store.Commit(ctx, e.d.Store, store.Work, dropCmd{burst})
		}
		all.add(done)
	}
	if err == nil {
		err = e.cas.Quarantine(name)
	}
	e.free(ctx, all)
	e.damaged("object", name.String()+" is set aside")
	e.events.Publish(Event{Kind: "quarantine", Of: name.String()})
	return err
}

// stillBad looks at an object again: all of a small one, the size of a large one.
func (e *Engine) stillBad(name b3.Digest, size int64) error {
	if size <= hotObject {
		_, err := e.cas.Read(name, size)
		return err
	}
	f, err := e.cas.Open(name, size)
	if err != nil {
		return err
	}
	return f.Close()
}

// install gives objects their names, and then their rows, which the store commits together: a row never leads to an object that a power cut can
// take away. A file that has no row then goes; where that is not known, it stays for the next start to look at. Room for the rows is made before an
// object has its name: what is evicted for them may be the same object.
func (e *Engine) install(ctx context.Context, jobs []*writeJob) {
	ctx = context.WithoutCancel(ctx) // what the store has been handed is not taken back
	names, results, rows := make([]b3.Digest, len(jobs)), make([]error, len(jobs)), make([]*flow.Reply[change], len(jobs))
	noRoom := e.mending(ctx, func() error { return e.makeRoom(ctx, 0, int64(len(jobs))) })
	for i, j := range jobs {
		if names[i], results[i] = j.row.Digest, noRoom; noRoom == nil {
			results[i] = e.cas.Place(j.temp)
		}
	}
	synced := e.cas.Sync(names...)
	for i, j := range jobs {
		rows[i] = flow.NewReply[change]()
		err := errors.Join(results[i], synced)
		if err == nil {
			err = store.Hand(ctx, e.d.Store, store.Work, installCmd{j.row}, func(done change, err error) { rows[i].Settle(done, err) })
		}
		if err != nil {
			rows[i].Fail(err)
		}
	}
	all := change{freed: names}
	for i := range jobs {
		var done change
		if done, results[i] = rows[i].Wait(ctx); errors.Is(results[i], store.ErrCorrupt) {
			results[i] = e.mending(ctx, func() (err error) {
				done, err = store.Commit(ctx, e.d.Store, store.Work, installCmd{jobs[i].row})
				return err
			})
		}
		if all.add(done); results[i] == nil && jobs[i].row.Size > hotObject {
			e.sums.add(names[i]) // hashed as it was written
		}
	}
	e.free(ctx, all)
	for i, j := range jobs {
		j.end(e.failed(results[i]))
	}
}

// failed is the error of a change of the content store in the words of callers, and shows it in readiness.
func (e *Engine) failed(err error) error {
	if errors.Is(err, store.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	e.d.Board.Set(service, keyStore, err)
	return err
}

// free books a change, and removes the files that have no row any more.
func (e *Engine) free(ctx context.Context, done change) {
	e.room.add(done.tally, 0)
	if done.moved {
		e.epoch.Add(1)
	}
	for _, name := range done.freed {
		if _, err := find(ctx, e, blobs, name); !errors.Is(err, ErrNotFound) {
			continue // another URL has brought it since
		}
		e.sums.forget(name)
		if err := e.cas.Remove(name); err != nil {
			e.log.Warn("object.remove", "digest", name.String(), "reason", err.Error(), "next", "the next start removes it")
		}
	}
}

// makeRoom evicts what was used least recently, until there is room for as many bytes and URLs more. Where URLs are short, those of the object that
// has the most go first: a host that answers any path with the same bytes costs others nothing. ErrFull evicts none.
func (e *Engine) makeRoom(ctx context.Context, bytes, urls int64) error {
	short, err := e.shortOf(bytes, urls)
	if err != nil || short == (tally{}) {
		return err
	}
	type object struct {
		used time.Time
		urls int
	}
	type candidate struct {
		key  b3.Digest
		size int64
		of   *object
	}
	var all []candidate
	objects, sum := map[b3.Digest]*object{}, int64(0)
	err = scan(ctx, e, paths, func(key b3.Digest, row Stored) error {
		o := objects[row.Digest]
		if o == nil {
			o, sum = &object{used: e.cas.Used(row.Digest)}, sum+row.Size
			objects[row.Digest] = o
		}
		o.urls++
		all = append(all, candidate{key, row.Size, o})
		return nil
	})
	if err != nil || sum < short.bytes {
		return errors.Join(ErrFull, err)
	}
	slices.SortFunc(all, func(a, b candidate) int {
		if short.urls > 0 && a.of.urls != b.of.urls {
			return b.of.urls - a.of.urls
		}
		return a.of.used.Compare(b.of.used)
	})
	var evicted change
	for left := short; (left.bytes > 0 || left.urls > 0) && len(all) > 0; {
		var keys []b3.Digest
		for next := left; (next.bytes > 0 || next.urls > 0) && len(keys) < evictBurst && len(all) > 0; all = all[1:] {
			keys = append(keys, all[0].key)
			next.add(tally{bytes: -all[0].size, urls: -1})
		}
		done, err := store.Commit(ctx, e.d.Store, store.Work, dropCmd{keys})
		if err != nil {
			return err
		}
		left.add(done.tally)
		e.free(ctx, done)
		evicted.tally.add(done.tally)
	}
	e.events.Publish(Event{Kind: "cas_evict", Result: fmt.Sprint(-evicted.urls, " URLs"), Size: -evicted.bytes})
	return nil
}

// recoverStore opens the content store: what a crash has left is removed, and what is stored is counted. A row without its file stays: it is a
// miss.
func (e *Engine) recoverStore(ctx context.Context) error {
	if err := e.cas.Prepare(); err != nil {
		return err
	}
	err := e.mending(ctx, func() error {
		var has tally
		err := scan(ctx, e, blobs, func(_ b3.Digest, b blobRow) error {
			has.add(tally{b.Size, 1, b.Refs})
			return nil
		})
		e.room.set(has)
		return err
	})
	if err != nil {
		return err
	}
	return e.failed(e.cas.Walk(ctx, func(path string, name b3.Digest) error {
		err := e.mending(ctx, func() error { _, err := find(ctx, e, blobs, name); return err })
		if !errors.Is(err, ErrNotFound) {
			return err
		}
		return os.Remove(path)
	}))
}
