package edge

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// writeJob is one change of the content store. One of temp, aside, need, repair, keep, place and
// check is set.
type writeJob struct {
	temp   *cas.Temp       // sealed; to install for row; owned by the writer
	row    tables.Stored   // of temp
	put    *putJob         // how to install it, if a caller has put it; nil: it was fetched
	regain bool            // temp is the missing file of an object that has a row
	loose  string          // why the installed URL lost its pin; valid after the job has succeeded
	aside  []corruptObject // corrupt objects to set aside
	need   int64           // bytes to make room for
	repair bool            // drop rows that do not read
	keep   *keepJob        // URLs to pin, unpin or remove
	place  *placeJob       // URLs of placements to add
	check  bool            // open the content store, or try to write to it
	reply  *flow.Reply[struct{}]
}

// corruptObject is an object that a reader found corrupt.
type corruptObject struct {
	name b3.Digest
	bad  fs.FileInfo // of the file that was read; nil if the writer must read it again
}

// Bounds of the writer.
const (
	evictBurst  = 256              // URLs that one command drops
	writeWithin = 20 * time.Second // the longest wait of a worker; a commit over 2 s is reported as slow
)

// write sends a job, with its temp, to the writer and waits at most writeWithin for the result.
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

// end answers a job. It drops the temp of a failed one.
func (j *writeJob) end(err error) {
	if err != nil {
		j.drop()
	}
	j.reply.Settle(struct{}{}, err)
}

// runWriter processes jobs in bursts.
func (e *Engine) runWriter(ctx context.Context) error {
	for {
		j, err := e.writes.Recv(ctx)
		if err != nil {
			return asset.Ignore(err, flow.ErrClosed) // drained
		}
		e.writeBurst(ctx, j)
	}
}

// writeBurst processes j and the jobs queued after it. Every job is answered, even on failure.
func (e *Engine) writeBurst(ctx context.Context, j *writeJob) {
	var installs []*writeJob
	defer func() {
		for _, j := range installs { // only after a panic; otherwise each has its answer
			j.reply.Fail(flow.ErrUnknown)
		}
	}()
	for more := true; more && j != nil; {
		switch {
		case !j.reply.Claim():
			j.drop()
		case j.temp != nil && !j.regain:
			installs = append(installs, j)
		default:
			e.change(ctx, j)
		}
		if more = len(installs) < config.WriteBurst; more {
			select {
			case j = <-e.writes.C(): // nil if the queue is closed
			default:
				more = false
			}
		}
	}
	if len(installs) > 0 {
		e.install(ctx, installs)
	}
}

// change processes a job that installs nothing.
func (e *Engine) change(ctx context.Context, j *writeJob) {
	defer j.reply.Fail(flow.ErrUnknown) // after a panic
	switch {
	case j.regain:
		j.end(e.repairing(ctx, func() error { return e.placeRegained(ctx, j) }))
	case j.repair:
		j.end(e.repair(ctx))
	case j.check:
		j.end(e.heal(ctx))
	case j.keep != nil:
		j.end(e.repairing(ctx, func() error { return e.keep(ctx, j.keep) }))
	case j.place != nil:
		j.end(e.repairing(ctx, func() error { return e.placeNow(ctx, j.place) }))
	case j.need > 0:
		j.end(e.repairing(ctx, func() error { return e.makeRoom(ctx, j.need, 0) }))
	default:
		j.end(e.repairing(ctx, func() error { return e.quarantine(ctx, j) }))
	}
}

// repairing calls do. If do meets a row that does not read, repairing repairs the rows and calls do
// again.
func (e *Engine) repairing(ctx context.Context, do func() error) error {
	err := do()
	if errors.Is(err, store.ErrCorrupt) && e.repair(ctx) == nil {
		err = do()
	}
	return err
}

// quarantine moves corrupt objects out of the content store, unless they were replaced since a
// reader found them corrupt. It drops the rows of an object without a file. All objects of a
// job share one scan of the rows.
func (e *Engine) quarantine(ctx context.Context, j *writeJob) (err error) {
	bad := map[b3.Digest]bool{}
	for _, one := range j.aside {
		still, failed := e.isBad(ctx, one)
		if err = errors.Join(err, failed); still {
			bad[one.name] = true
		}
	}
	if len(bad) == 0 {
		return err
	}
	var rows []b3.Digest
	walked := e.eachURL(ctx, func(key b3.Digest, row tables.Stored) error {
		if bad[row.Digest] {
			rows = append(rows, key)
		}
		return nil
	})
	var all tables.Change
	for burst := range slices.Chunk(rows, evictBurst) {
		var done tables.Change
		if walked == nil {
			done, walked = store.Commit(ctx, e.d.Store, store.Work, tables.Drop{Keys: burst, Lost: true})
		}
		all.Add(done)
	}
	for name := range bad {
		e.sums.forget(name)
		if walked == nil {
			err = errors.Join(err, e.cas.Quarantine(name))
		}
		e.damaged("object", name.String()+" is set aside")
		e.events.Publish(asset.Event{Kind: "quarantine", Of: name.String()})
	}
	e.applyChange(ctx, all)
	return errors.Join(err, walked)
}

// isBad reports whether an object has a row and is still as its reader found it.
func (e *Engine) isBad(ctx context.Context, one corruptObject) (bool, error) {
	b, err := tables.Find(ctx, e.d.Store, tables.Blobs, one.name)
	if err != nil {
		return false, asset.Ignore(err, asset.ErrNotFound)
	}
	if one.bad == nil {
		err = e.stillBad(one.name, b.Size)
	} else if e.cas.Holds(one.name, one.bad) {
		err = cas.ErrCorrupt
	}
	if errors.Is(err, cas.ErrCorrupt) || errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// stillBad checks an object again: the bytes of a small one, the size of a large one.
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

// install names the files of objects and then adds their rows, which the store commits together, so
// that no power cut can take away an object that a row leads to. It removes each file that has no
// row afterwards; if that cannot be decided, the next start removes it. Room for the rows is made
// before an object has its name, because eviction may remove the same object.
func (e *Engine) install(ctx context.Context, jobs []*writeJob) {
	ctx = context.WithoutCancel(ctx) // a command that the store has accepted cannot be taken back
	names, results := make([]b3.Digest, len(jobs)), make([]error, len(jobs))
	noRoom := e.repairing(ctx, func() error { return e.makeRoom(ctx, 0, int64(len(jobs))) })
	for i, j := range jobs {
		names[i], results[i] = j.row.Digest, noRoom
		if noRoom == nil {
			results[i] = e.cas.Place(j.temp)
		}
	}
	synced := e.cas.Sync(names...)
	commands := e.installCmds(ctx, jobs)
	rows := make([]*flow.Reply[tables.Change], len(jobs))
	for i := range jobs {
		rows[i] = flow.NewReply[tables.Change]()
		err := errors.Join(results[i], synced)
		if err == nil {
			err = store.Hand(ctx, e.d.Store, store.Work, commands[i],
				func(done tables.Change, err error) { rows[i].Settle(done, err) })
		}
		if err != nil {
			rows[i].Fail(err)
		}
	}
	all := tables.Change{Freed: names}
	for i, j := range jobs {
		done, err := rows[i].Wait(ctx)
		if errors.Is(err, store.ErrCorrupt) {
			err = e.repairing(ctx, func() (err error) {
				done, err = store.Commit(ctx, e.d.Store, store.Work, commands[i])
				return err
			})
		}
		results[i] = err
		all.Add(done)
		if j.put != nil {
			j.put.fresh = done.Objects > 0
		}
		if err == nil && j.row.Size > hotObject {
			e.sums.add(names[i]) // it was hashed while it was written
		}
		if done.Pins < 0 {
			e.unpinned(j)
		}
	}
	e.applyChange(ctx, all)
	for i, j := range jobs {
		if _, refused := errors.AsType[*asset.PinsError](results[i]); refused {
			j.end(results[i]) // not a fault of the content store
			continue
		}
		j.end(e.failed(results[i]))
	}
}

// installCmds returns the commands that add the rows of jobs. Their limits together keep the pins
// below the caps, whatever other jobs of the burst do.
func (e *Engine) installCmds(ctx context.Context, jobs []*writeJob) []store.Command[tables.Change] {
	left, pins := e.pinRoom(), map[string]bool{}
	all := make([]store.Command[tables.Change], len(jobs))
	for i, j := range jobs {
		listed, err := tables.Find(ctx, e.d.Store, tables.Keys, tables.KeyOf(j.row.URL))
		damaged := err != nil && !errors.Is(err, asset.ErrNotFound) // the row may be pinned
		grows := j.row.Size - listed.Size
		if j.put == nil {
			all[i] = tables.Install{Row: j.row, Grow: left.Bytes}
			if damaged || listed.Pinned && grows > 0 && grows <= left.Bytes {
				left.Bytes = max(0, left.Bytes-grows)
			}
			continue
		}
		all[i] = tables.Put{Row: j.row, Announce: j.put.announce, Left: left}
		if !pins[j.row.URL] { // a second put of the burst adds no pin
			pins[j.row.URL] = true
			left.Pin(j.row, listed)
		}
	}
	return all
}

// unpinned records that an installed URL lost its pin because it has grown.
func (e *Engine) unpinned(j *writeJob) {
	j.loose = "the object has grown, and its pin would exceed edge.cas.max_pinned"
	e.events.Publish(asset.Event{Kind: "cas_unpin", Of: asset.Shown(j.row.URL), Result: j.loose, Size: j.row.Size})
}

// applyChange applies a change to the counts, and removes the files of objects without a row.
func (e *Engine) applyChange(ctx context.Context, done tables.Change) {
	e.room.add(done.Tally)
	if done.Moved {
		e.epoch.Add(1)
	}
	for _, name := range done.Freed {
		if _, err := tables.Find(ctx, e.d.Store, tables.Blobs, name); !errors.Is(err, asset.ErrNotFound) {
			continue // another URL leads to the object again
		}
		e.sums.forget(name)
		if err := e.cas.Remove(name); err != nil {
			e.log.Warn("object.remove", "digest", name.String(), "reason", err.Error(), "next",
				"the next start removes it")
		}
	}
}
