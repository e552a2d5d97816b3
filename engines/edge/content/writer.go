package content

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

// change is a change of the content store. The task cas_writer applies it.
type change interface {
	// apply makes the change. If that fails, the writer calls drop.
	apply(ctx context.Context, s *Store) error
	// drop discards what belongs to the change.
	drop()
}

// writeJob is a change on its way to the writer.
type writeJob struct {
	change
	reply *flow.Reply[struct{}]
}

// bare is a change that owns nothing.
type bare struct{}

func (bare) drop() {}

// installation adds an object: the writer installs several of them in one burst.
type installation struct {
	temp  *cas.Temp     // sealed; owned by the writer
	row   tables.Stored // of temp
	put   *putJob       // how to install it, if a caller has put it; nil: it was fetched
	loose string        // why the installed URL lost its pin; valid after the job has succeeded
}

func (j *installation) drop() { j.temp.Drop() }

func (j *installation) apply(ctx context.Context, s *Store) error {
	return s.install(ctx, []*installation{j})[0]
}

// setAside sets corrupt objects aside.
type setAside struct {
	bare
	all []corruptObject
}

func (j *setAside) apply(ctx context.Context, s *Store) error {
	return s.repairing(ctx, func() error { return s.quarantine(ctx, j.all) })
}

// roomFor makes room for so many bytes.
type roomFor struct {
	bare
	bytes int64
}

func (j roomFor) apply(ctx context.Context, s *Store) error {
	return s.repairing(ctx, func() error { return s.makeRoom(ctx, j.bytes, 0) })
}

// repairRows drops rows that do not read.
type repairRows struct{ bare }

func (repairRows) apply(ctx context.Context, s *Store) error { return s.repair(ctx) }

// tryStore opens the content store, or tries to write to it.
type tryStore struct{ bare }

func (tryStore) apply(ctx context.Context, s *Store) error { return s.heal(ctx) }

// corruptObject is an object that a reader found corrupt.
type corruptObject struct {
	name b3.Digest
	bad  fs.FileInfo // of the file that was read; nil if the writer must read it again
}

// TaskWriter is the task that changes the content store.
const TaskWriter = "cas_writer"

// Bounds of the writer.
const (
	evictBurst  = 256              // URLs that one command drops
	writeWithin = 20 * time.Second // the longest wait of a worker; a commit over 2 s is reported as slow
)

// Install stores a sealed object under the URL of row, and waits for it at most 20 s. It owns temp.
// loose describes why the URL lost its pin, if it did.
func (s *Store) Install(ctx context.Context, row tables.Stored, temp *cas.Temp) (loose string, err error) {
	j := &installation{row: row, temp: temp}
	err = s.write(ctx, j)
	return j.loose, err
}

// write sends a change to the writer and waits at most writeWithin for the result.
func (s *Store) write(ctx context.Context, c change) error {
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	j := &writeJob{c, flow.NewReply[struct{}]()}
	if err := s.writes.Send(ctx, j); err != nil {
		c.drop()
		return err
	}
	_, err := j.reply.Wait(ctx)
	return err
}

// end answers a job. It drops the change of a failed one.
func (j *writeJob) end(err error) {
	if err != nil {
		j.drop()
	}
	j.reply.Settle(struct{}{}, err)
}

// runWriter processes jobs in bursts.
func (s *Store) runWriter(ctx context.Context) error {
	for {
		j, err := s.writes.Recv(ctx)
		if err != nil {
			return asset.Ignore(err, flow.ErrClosed) // drained
		}
		s.writeBurst(ctx, j)
	}
}

// writeBurst processes j and the jobs queued after it. Every job is answered, even on failure.
func (s *Store) writeBurst(ctx context.Context, j *writeJob) {
	var jobs []*writeJob
	var installs []*installation
	var renewed []*writeJob
	defer func() {
		for _, j := range append(jobs, renewed...) { // only after a panic; otherwise each has its answer
			j.reply.Fail(flow.ErrUnknown)
		}
	}()
	for more := true; more && j != nil; {
		if !j.reply.Claim() {
			j.drop()
		} else {
			switch c := j.change.(type) {
			case *installation:
				jobs, installs = append(jobs, j), append(installs, c)
			case *renewal:
				renewed = append(renewed, j)
			default:
				s.apply(ctx, j)
			}
		}
		if more = len(jobs)+len(renewed) < config.WriteBurst; more {
			select {
			case j = <-s.writes.C(): // nil if the queue is closed
			default:
				more = false
			}
		}
	}
	s.renew(ctx, renewed)
	if len(jobs) == 0 {
		return
	}
	for i, err := range s.install(ctx, installs) {
		jobs[i].end(err)
	}
}

// apply processes a job that installs nothing.
func (s *Store) apply(ctx context.Context, j *writeJob) {
	defer j.reply.Fail(flow.ErrUnknown) // after a panic
	j.end(j.change.apply(ctx, s))
}

// repairing calls do. If do meets a row that does not read, repairing repairs the rows and calls do
// again.
func (s *Store) repairing(ctx context.Context, do func() error) error {
	err := do()
	if errors.Is(err, store.ErrCorrupt) && s.repair(ctx) == nil {
		err = do()
	}
	return err
}

// quarantine moves corrupt objects out of the content store, unless they were replaced since a
// reader found them corrupt. It drops the rows of an object without a file. All objects of a
// job share one scan of the rows.
func (s *Store) quarantine(ctx context.Context, all []corruptObject) (err error) {
	bad := map[b3.Digest]bool{}
	for _, one := range all {
		still, failed := s.isBad(ctx, one)
		if err = errors.Join(err, failed); still {
			bad[one.name] = true
		}
	}
	if len(bad) == 0 {
		return err
	}
	var rows []b3.Digest
	walked := s.eachURL(ctx, func(key b3.Digest, row tables.Stored) error {
		if bad[row.Digest] {
			rows = append(rows, key)
		}
		return nil
	})
	var done tables.Change
	for burst := range slices.Chunk(rows, evictBurst) {
		var one tables.Change
		if walked == nil {
			one, walked = store.Commit(ctx, s.d.Store, store.Work, tables.Drop{Keys: burst, Lost: true})
		}
		done.Add(one)
	}
	for name := range bad {
		s.sums.forget(name)
		if walked == nil {
			err = errors.Join(err, s.d.Dir.Quarantine(name))
		}
		s.d.Owner.Damaged("object", name.String()+" is set aside")
		s.d.Owner.Event(asset.Event{Kind: "quarantine", Of: name.String()})
	}
	s.applyChange(ctx, done)
	return errors.Join(err, walked)
}

// isBad reports whether an object has a row and is still as its reader found it.
func (s *Store) isBad(ctx context.Context, one corruptObject) (bool, error) {
	b, err := tables.Find(ctx, s.d.Store, tables.Blobs, one.name)
	if err != nil {
		return false, asset.Ignore(err, asset.ErrNotFound)
	}
	if one.bad == nil {
		err = s.stillBad(one.name, b.Size)
	} else if s.d.Dir.Holds(one.name, one.bad) {
		err = cas.ErrCorrupt
	}
	if errors.Is(err, cas.ErrCorrupt) || errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// stillBad checks an object again: the bytes of a small one, the size of a large one.
func (s *Store) stillBad(name b3.Digest, size int64) error {
	if size <= hotObject {
		_, err := s.d.Dir.Read(name, size)
		return err
	}
	f, err := s.d.Dir.Open(name, size)
	if err != nil {
		return err
	}
	return f.Close()
}

// install names the files of objects and then adds their rows, which the store commits together, so
// that no power cut can take away an object that a row leads to. It removes each file that has no
// row afterwards; if that cannot be decided, the next start removes it. Room for the rows is made
// before an object has its name, because eviction may remove the same object. It returns the result
// of each.
func (s *Store) install(ctx context.Context, jobs []*installation) (results []error) {
	ctx = context.WithoutCancel(ctx) // a command that the store has accepted cannot be taken back
	names := make([]b3.Digest, len(jobs))
	results = make([]error, len(jobs))
	noRoom := s.repairing(ctx, func() error { return s.makeRoom(ctx, 0, int64(len(jobs))) })
	for i, j := range jobs {
		names[i], results[i] = j.row.Digest, noRoom
		if noRoom == nil {
			results[i] = s.d.Dir.Place(j.temp)
		}
	}
	synced := s.d.Dir.Sync(names...)
	commands := s.installCmds(ctx, jobs)
	rows := make([]*flow.Reply[tables.Change], len(jobs))
	for i := range jobs {
		rows[i] = flow.NewReply[tables.Change]()
		err := errors.Join(results[i], synced)
		if err == nil {
			err = store.Hand(ctx, s.d.Store, store.Work, commands[i],
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
			err = s.repairing(ctx, func() (err error) {
				done, err = store.Commit(ctx, s.d.Store, store.Work, commands[i])
				return err
			})
		}
		results[i] = err
		all.Add(done)
		if j.put != nil {
			j.put.fresh = done.Objects > 0
		}
		if err == nil && j.row.Size > hotObject {
			s.sums.add(names[i]) // it was hashed while it was written
		}
		if done.Pins < 0 {
			s.unpinned(j)
		}
	}
	s.applyChange(ctx, all)
	for i, err := range results {
		if _, refused := errors.AsType[*asset.PinsError](err); !refused { // a fault of the content store
			results[i] = s.Failed(err)
		}
	}
	return results
}

// installCmds returns the commands that add the rows of jobs. Their limits together keep the pins
// below the caps, whatever other jobs of the burst do.
func (s *Store) installCmds(ctx context.Context, jobs []*installation) []store.Command[tables.Change] {
	left, pins := s.PinRoom(), map[string]bool{}
	all := make([]store.Command[tables.Change], len(jobs))
	for i, j := range jobs {
		listed, err := tables.Find(ctx, s.d.Store, tables.Keys, tables.KeyOf(j.row.URL))
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
func (s *Store) unpinned(j *installation) {
	j.loose = "the object has grown, and its pin would exceed edge.cas.max_pinned"
	s.d.Owner.Event(asset.Event{Kind: "cas_unpin", Of: asset.Shown(j.row.URL), Result: j.loose, Size: j.row.Size})
}

// applyChange applies a change to the counts, and removes the files of objects without a row.
func (s *Store) applyChange(ctx context.Context, done tables.Change) {
	s.room.add(done.Tally)
	if done.Moved {
		s.epoch.Add(1)
	}
	for _, name := range done.Freed {
		if _, err := tables.Find(ctx, s.d.Store, tables.Blobs, name); !errors.Is(err, asset.ErrNotFound) {
			continue // another URL leads to the object again
		}
		s.sums.forget(name)
		if err := s.d.Dir.Remove(name); err != nil {
			s.d.Log.Warn("object.remove", "digest", name.String(), "reason", err.Error(), "next",
				"the next start removes it")
		}
	}
}
