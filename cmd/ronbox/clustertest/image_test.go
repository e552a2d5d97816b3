package clustertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// sector is the number of bytes that a disk writes atomically.
const sector = 512

// keeps reports whether a change is on the disk after a power cut. durable reports whether a sync has
// covered it.
type keeps func(durable bool) bool

// fair keeps all durable changes, and none, half or all of the others.
func fair(d *rand.Rand) keeps {
	share := float64(d.IntN(3)) / 2
	return func(durable bool) bool { return durable || d.Float64() < share }
}

// all keeps every change, as the page cache does.
func all(bool) bool { return true }

// lying loses every change, as a disk does that reports success for each sync and keeps nothing.
func lying(bool) bool { return false }

// image writes to a directory what the disk holds after a power cut at a line of the trace.
func (k *disk) image(at int, keep keeps, to string) error {
	names := maps.Clone(k.first)
	for _, m := range k.moves {
		if m.began <= at && keep(m.ended < m.dir.synced(at)) {
			setNames(names, m.names)
		}
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	made := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(names)) {
		i := names[path]
		if path != "." && !made[filepath.Dir(path)] {
			continue // the directory was not created, or was removed
		}
		var err error
		if i.mode.IsDir() {
			made[path] = true
			err = os.Mkdir(filepath.Join(to, path), i.mode.Perm())
		} else {
			err = i.image(at, keep, filepath.Join(to, path))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// image writes to a file what the disk holds of its content.
func (i *inode) image(at int, keep keeps, to string) error {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, i.mode.Perm())
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	if i.base != "" {
		err = copySparse(out, i.base)
	}
	mark := i.synced(at)
	late := map[int64][]change{} // by sector: what the disk does not have yet
	for _, c := range i.changes {
		switch durable := c.ended < mark; {
		case c.began > at:
		case c.data != nil:
			err = errors.Join(err, c.sectors(out, late, func() bool { return keep(durable) }))
		case keep(durable):
			clear(late)
			err = errors.Join(err, c.resize(out))
		}
	}
	return err
}

// sectors writes the sectors of a change that the disk keeps. A sector that is kept has all earlier
// writes to it.
func (c change) sectors(out *os.File, late map[int64][]change, kept func() bool) error {
	for len(c.data) > 0 {
		number := c.at / sector
		n := min(int(sector-c.at%sector), len(c.data))
		late[number] = append(late[number], change{data: c.data[:n], at: c.at})
		if kept() {
			for _, piece := range late[number] {
				if _, err := out.WriteAt(piece.data, piece.at); err != nil {
					return err
				}
			}
			delete(late, number)
		}
		c.data, c.at = c.data[n:], c.at+int64(n)
	}
	return nil
}

// resize changes the length of a file.
func (c change) resize(out *os.File) error {
	info, err := out.Stat()
	if err != nil || c.grows && info.Size() >= c.at {
		return err
	}
	return out.Truncate(c.at)
}

// copySparse copies a file. Blocks of zeros become holes.
func copySparse(out *os.File, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	var at int64
	block, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(in, block)
		if n > 0 && !bytes.Equal(block[:n], zeros[:n]) {
			if _, err := out.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return out.Truncate(at)
		case err != nil:
			return err
		}
	}
}

// copyTree copies the files and directories of a directory.
func copyTree(from, to string) error {
	k, err := newDisk(from, from)
	if err != nil {
		return err
	}
	return k.image(0, all, to)
}

// sameTree returns an error that names the first path at which two directories differ.
func sameTree(one, other string) error {
	a, err := newDisk(one, one)
	if err != nil {
		return err
	}
	b, err := newDisk(other, other)
	if err != nil {
		return err
	}
	if got, want := a.paths(), b.paths(); !slices.Equal(got, want) {
		return fmt.Errorf("the names %q, want %q", got, want)
	}
	for path, i := range a.now {
		if i.mode.IsDir() {
			continue
		}
		got, err := os.ReadFile(i.base)
		want, err2 := os.ReadFile(b.now[path].base)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("%s differs: %d bytes, want %d", path, len(got), len(want))
		}
	}
	return nil
}
