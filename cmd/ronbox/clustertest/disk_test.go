package clustertest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ronbox/appliance/host/hosttest"
)

// tracedCalls lists the calls that change files or make changes durable.
const tracedCalls = "openat,mkdirat,unlinkat,renameat,renameat2,linkat,symlinkat," +
	"write,writev,pwrite64,pwritev,pwritev2,lseek," +
	"ftruncate,truncate,fallocate,copy_file_range,splice,fsync,fdatasync,sync_file_range"

// disk holds the files below a directory as they were before a trace, and the calls of the trace that
// changed them.
type disk struct {
	root   string
	first  map[string]*inode // by path below root, before the trace
	now    map[string]*inode // by path below root, after all calls
	moves  []move
	opened map[int64]*offset // by descriptor
	last   int               // line of the trace
}

// span holds the lines of a trace between which a call was executed.
type span struct{ began, ended int }

// inode is a file or a directory.
type inode struct {
	mode    fs.FileMode
	base    string // a file with the content before the trace; "": there was none
	size    int64  // after all calls
	changes []change
	syncs   []span
}

// change is a write, or a change of the length if data is nil.
type change struct {
	span
	data  []byte
	at    int64 // of data, or the length
	grows bool  // a length that is smaller changes nothing
}

// move is a change of names: a file is created, renamed or removed.
type move struct {
	span
	dir   *inode            // a sync of it makes the move durable
	names map[string]*inode // by path; nil: removed
}

// offset is the place of an open file at which write continues.
type offset struct {
	at   int64
	ends bool // each write is at the end of the file
}

// newDisk returns a disk on which the files of the directory base have the paths below root.
func newDisk(root, base string) (*disk, error) {
	k := &disk{root: root, first: map[string]*inode{}, opened: map[int64]*offset{}}
	err := filepath.WalkDir(base, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() && !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(base, path)
		k.first[rel] = &inode{mode: info.Mode(), base: path, size: info.Size()}
		return err
	})
	k.now = maps.Clone(k.first)
	return k, err
}

// read applies the calls in the file of a trace.
func (k *disk) read(trace string) error {
	f, err := os.Open(trace)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for c, err := range hosttest.Calls(f) {
		if err == nil {
			err = k.apply(c)
		}
		if err != nil {
			return fmt.Errorf("line %d of the trace: %w", c.Began, err)
		}
		k.last = max(k.last, c.Began)
		if c.Ended != hosttest.Never {
			k.last = max(k.last, c.Ended)
		}
	}
	return nil
}

// below returns the path below root, and reports whether there is one.
func (k *disk) below(path string) (rel string, ok bool) {
	if path == k.root {
		return ".", true
	}
	return strings.CutPrefix(path, k.root+"/")
}

var errUnknown = errors.New("not known here")

func (k *disk) apply(c hosttest.Call) error {
	if c.Failed() {
		return nil
	}
	switch c.Name {
	case "openat", "mkdirat", "unlinkat", "renameat", "renameat2", "linkat", "symlinkat", "truncate":
		return k.applyNames(c)
	}
	fd, path := c.FD()
	rel, ours := k.below(path)
	if !ours {
		return nil
	}
	i := k.now[rel]
	if i == nil {
		return fmt.Errorf("%w: %s", errUnknown, rel)
	}
	s := span{c.Began, c.Ended}
	switch c.Name {
	case "fsync", "fdatasync":
		i.syncs = append(i.syncs, s)
		return nil
	case "lseek":
		if o := k.opened[fd]; o != nil {
			o.at = c.Number()
		}
		return nil
	case "ftruncate":
		size, err := c.LastNumber()
		i.resize(s, size, false)
		return err
	case "fallocate":
		return i.allocate(s, c.Args)
	case "pwrite64":
		at, err := c.LastNumber()
		return errors.Join(err, i.write(s, c, at))
	case "write":
		o := k.opened[fd]
		if o == nil {
			return fmt.Errorf("%w: descriptor %d of %s", errUnknown, fd, rel)
		}
		if o.ends {
			o.at = i.size
		}
		at := o.at
		o.at += max(c.Number(), 0)
		return i.write(s, c, at)
	}
	return fmt.Errorf("%w: of %s", errUnknown, rel)
}

// applyNames applies a call whose arguments are paths.
func (k *disk) applyNames(c hosttest.Call) error {
	s := span{c.Began, c.Ended}
	var rels []string
	for _, path := range c.Paths() {
		if rel, ours := k.below(filepath.Clean(path)); ours {
			rels = append(rels, rel)
		}
	}
	if len(rels) == 0 {
		return nil
	}
	was := k.now[rels[0]]
	switch c.Name {
	case "openat":
		return k.open(s, c, rels[0])
	case "mkdirat":
		k.move(s, rels[0], map[string]*inode{rels[0]: {mode: fs.ModeDir | 0o700}})
	case "unlinkat":
		k.move(s, rels[0], map[string]*inode{rels[0]: nil})
	case "linkat":
		if len(rels) != 2 || was == nil {
			return fmt.Errorf("%w: %v", errUnknown, rels)
		}
		k.move(s, rels[1], map[string]*inode{rels[1]: was})
	case "renameat", "renameat2":
		if len(rels) != 2 || was != nil && was.mode.IsDir() {
			return fmt.Errorf("%w: %v", errUnknown, rels)
		}
		if was != nil { // not a socket
			k.move(s, rels[1], map[string]*inode{rels[0]: nil, rels[1]: was})
		}
	default:
		return fmt.Errorf("%w: %v", errUnknown, rels)
	}
	return nil
}

// move notes a change of names, which a sync of the directory of path makes durable.
func (k *disk) move(s span, path string, names map[string]*inode) {
	k.moves = append(k.moves, move{s, k.now[filepath.Dir(path)], names})
	setNames(k.now, names)
}

func setNames(all, names map[string]*inode) {
	for path, i := range names {
		if i == nil {
			delete(all, path)
		} else {
			all[path] = i
		}
	}
}

func (k *disk) open(s span, c hosttest.Call, rel string) error {
	i := k.now[rel]
	_, flags, _ := strings.Cut(c.Args[strings.LastIndex(c.Args, `"`):], " ")
	if strings.Contains(flags, "O_TMPFILE") || strings.Contains(flags, "SYNC") {
		return fmt.Errorf("%w: %s", errUnknown, flags)
	}
	if i == nil && strings.Contains(flags, "O_CREAT") {
		mode, err := strconv.ParseUint(c.Last(), 8, 32)
		if err != nil {
			return err
		}
		i = &inode{mode: fs.FileMode(mode).Perm()}
		k.move(s, rel, map[string]*inode{rel: i})
	}
	if i != nil && strings.Contains(flags, "O_TRUNC") {
		i.resize(s, 0, false)
	}
	k.opened[c.Number()] = &offset{ends: strings.Contains(flags, "O_APPEND")}
	return nil
}

func (i *inode) resize(s span, size int64, grows bool) {
	i.changes = append(i.changes, change{span: s, at: size, grows: grows})
	if !grows || size > i.size {
		i.size = size
	}
}

// allocate notes a fallocate, which may change the length.
func (i *inode) allocate(s span, args string) error {
	parts := strings.Split(args, ", ")
	at, err := strconv.ParseInt(parts[len(parts)-2], 10, 64)
	n, err2 := strconv.ParseInt(parts[len(parts)-1], 10, 64)
	switch mode := parts[1]; {
	case err != nil || err2 != nil:
		return errors.Join(err, err2)
	case mode == "0":
		i.resize(s, at+n, true)
	case mode != "FALLOC_FL_KEEP_SIZE":
		return fmt.Errorf("%w: %s", errUnknown, mode)
	}
	return nil
}

func (i *inode) write(s span, c hosttest.Call, at int64) error {
	data, err := c.Data()
	if n := c.Number(); err == nil && s.ended != hosttest.Never && n < int64(len(data)) {
		data = data[:n]
	}
	if len(data) > 0 {
		i.changes = append(i.changes, change{span: s, data: data, at: at})
		i.size = max(i.size, at+int64(len(data)))
	}
	return err
}

// synced returns the line before which a call must have ended to be durable at a line.
func (i *inode) synced(at int) (mark int) {
	for _, s := range i.syncs {
		if s.ended <= at {
			mark = max(mark, s.began)
		}
	}
	return mark
}

// paths returns the names below root after all calls.
func (k *disk) paths() []string { return slices.Sorted(maps.Keys(k.now)) }
