package pack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
)

// scanJob requests a scan of the folder. The reply is the error of the scan.
type scanJob struct {
	how   looks
	reply *flow.Reply[error]
}

// update applies change to a copy of the current generation and publishes it. change may run
// several times, so it must have no other effect.
func (s *Set) update(change func(next *generation)) {
	for {
		old := s.current.Load()
		next := old.clone()
		change(next)
		if s.publish(old, next) {
			return
		}
	}
}

// publish makes next current, unless old is no longer current. It publishes events, logs new faults
// and releases the packs that next does not have.
func (s *Set) publish(old, next *generation) bool {
	if !s.current.CompareAndSwap(old, next) {
		return false
	}
	for _, id := range old.ids() {
		if e := old.packs[id]; next.packs[id].path == "" {
			e.info.State = asset.PackRemoved
			s.Event(e.info)
		}
	}
	for _, id := range next.ids() {
		now, was := next.packs[id].info, old.packs[id].info
		if now.State != was.State || now.Version != was.Version {
			s.Event(now)
		}
		if now.Fault != was.Fault && now.Fault != "" {
			s.Log.Warn("invalid pack", "pack", id, "file", now.File, "state", string(now.State),
				"fault", now.Fault, "next", "replace the file and run `ronbox edge packs rescan`")
		}
	}
	kept := next.open()
	for p := range old.open() {
		if !kept[p] {
			p.Close()
		}
	}
	s.moved.Store(struct{}{})
	return true
}

// looks are the kinds of scans.
type looks int

const (
	lookWatch  looks = iota // opens a file that is as the last look found it
	lookAtOnce              // opens every new file
	lookAgain               // also opens refused files again
)

// scan lists the folder and publishes its packs. It opens no pack file; the opener opens new files.
func (s *Set) scan(how looks) error {
	s.alerted.Store(false)
	for {
		old := s.current.Load()
		files, err := os.ReadDir(s.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			if s.unread.CompareAndSwap(false, true) {
				s.Log.Warn("the folder of packs cannot be read", "reason", err.Error(), "next",
					"ronbox edge packs rescan")
			}
			return fmt.Errorf("scan of packs: %w", err)
		}
		s.unread.Store(false)
		next := s.listed(old, files, how)
		if how == lookWatch && next.same(old) || s.publish(old, next) { // publish fails if another task has published
			return nil
		}
	}
}

// same reports whether the entries of g are those of old.
func (g *generation) same(old *generation) bool {
	return maps.EqualFunc(g.packs, old.packs, func(a, b entry) bool {
		return a.path == b.path && a.pack == b.pack && a.next == b.next && a.seen == b.seen && a.want == b.want &&
			a.refused == b.refused && a.info.State == b.info.State && a.info.Next == b.info.Next &&
			a.info.Fault == b.info.Fault
	}) && len(g.rows) == len(old.rows)
}

// listed returns the generation that follows old, for the files of the folder.
func (s *Set) listed(old *generation, files []fs.DirEntry, how looks) *generation {
	next := &generation{packs: map[string]entry{}, rows: map[string]result{}}
	// A new file must not take the id or the place of a pack that serves.
	slices.SortStableFunc(files, func(a, b fs.DirEntry) int {
		return cmp.Compare(old.age(filepath.Join(s.dir, a.Name())), old.age(filepath.Join(s.dir, b.Name())))
	})
	for _, f := range files {
		path := filepath.Join(s.dir, f.Name())
		info, fault := nameOf(path)
		if f.Name()[0] == '.' || info.Kind != PMTiles && info.Kind != MBTiles {
			continue
		}
		if other, clash := next.packs[info.ID]; clash {
			fault = fmt.Errorf("%s has this id: rename one of them", other.info.File)
			info.ID = info.File
		}
		if fault == nil && len(next.packs) >= maxPacks {
			fault = fmt.Errorf("there are more than %d packs, each of which holds files open", maxPacks)
		}
		row, known := old.rows[info.File]
		if known {
			next.rows[info.File] = row
		}
		e := old.packs[info.ID]
		if e.path != path {
			e = entry{info: info, path: path}
		}
		st, err := os.Stat(path)
		if fault = cmp.Or(fault, err); fault != nil {
			next.packs[info.ID] = entry{info: info, path: path}.failed(stamp{}, fault.Error())
			continue
		}
		next.packs[info.ID] = e.listed(stampOf(st, nil), row, how)
	}
	return next
}

// age returns 0 for the file of an open pack, and 1 for any other.
func (g *generation) age(path string) int {
	info, _ := nameOf(path)
	if e := g.packs[info.ID]; e.path == path && e.pack != nil {
		return 0
	}
	return 1
}

// runScanner scans the folder for each job, and looks at it every edge.packs.watch.
func (s *Set) runScanner(ctx context.Context) error {
	defer func() {
		if ctx.Err() != nil { // the task is not restarted, so these jobs must be answered here
			for _, job := range s.jobs.Discard("stopped") {
				job.reply.Fail(flow.ErrCanceled)
			}
		}
	}()
	var look <-chan time.Time
	if s.looks != nil {
		defer s.looks.Stop()
		look = s.looks.C()
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-look:
			_ = s.scan(lookWatch) // scan logs its error
		case job, ok := <-s.jobs.C():
			if !ok {
				return nil
			}
			job.reply.Answer(s.scan(job.how))
		}
	}
	return context.Cause(ctx)
}

// runOpener opens the files that scans have found.
func (s *Set) runOpener(ctx context.Context) error {
	return s.follow(ctx, func(g *generation) bool {
		id := g.unopened()
		if id != "" {
			s.open(ctx, g.packs[id])
		}
		return id != ""
	})
}

// follow calls do with the current generation until ctx ends. After do has returned false, follow
// waits for another generation.
func (s *Set) follow(ctx context.Context, do func(*generation) bool) error {
	for ctx.Err() == nil {
		_, moved := s.moved.Load()
		if do(s.current.Load()) {
			continue
		}
		select {
		case <-moved:
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

// unopened returns the id of a pack to open, or "". Files that were never refused come first, so
// that a file that fails slowly does not delay them.
func (g *generation) unopened() (first string) {
	for _, id := range g.ids() {
		e := g.packs[id]
		if e.want == (stamp{}) {
			continue
		}
		if e.refused == (stamp{}) {
			return id
		}
		if first == "" {
			first = id
		}
	}
	return first
}

// open opens the file that e wants, and publishes the pack or its fault, unless a scan has changed
// the entry in the meantime.
func (s *Set) open(ctx context.Context, e entry) {
	info, _ := nameOf(e.path)
	info.ID = e.info.ID
	var p *Pack
	err := guarded(func() (err error) {
		p, err = s.env.open(ctx, e.path, info, s.serial.Add(1))
		return err
	})
	if ctx.Err() != nil {
		if err == nil {
			p.Close()
		}
		return
	}
	taken := false
	s.update(func(next *generation) {
		taken = false
		now := next.packs[e.info.ID]
		if now.path != e.path || now.want != e.want {
			return
		}
		if err != nil {
			now.want = stamp{}
			next.packs[e.info.ID] = now.failed(e.want, err.Error())
			return
		}
		taken = true
		next.packs[e.info.ID] = now.opened(p, next.rows[p.info.File])
	})
	if err == nil && !taken {
		p.Close()
	}
}

// guarded calls f and converts a panic to an error of the file that f reads. A restart would only
// meet the same panic again.
func guarded(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("reading it panicked: %v", v)
		}
	}()
	return f()
}
