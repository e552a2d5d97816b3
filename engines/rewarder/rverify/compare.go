package rverify

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// maxShown bounds the bytes of expected content that a fault includes.
const maxShown = 200

var errDiffers = errors.New("differs")

// compare compares a file of a folder with the same file of the run.
func (r *Run) compare(dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened for reading only
	c := comparer{file: f}
	if err := r.writeFile(name, &c); err != nil && !errors.Is(err, errDiffers) {
		return err
	}
	if err := c.end(); err != nil {
		return err
	}
	if c.differs {
		return wrong(name, "is not in canonical form, or not what the other files give: from byte %d on it must be %s",
			c.from, c.shown)
	}
	return nil
}

// comparer compares the bytes written to it with a file. At the first difference it keeps the start
// of the enclosing object, such as an actor's.
type comparer struct {
	file    io.Reader
	has     []byte // bytes of the file, as many as were written last
	at      int64  // offset in the file
	from    int64  // offset of the object
	shown   []byte // its first expected bytes
	differs bool
}

// Write implements io.Writer. It returns errDiffers after a difference was found and described.
func (c *comparer) Write(want []byte) (int, error) {
	n := len(want)
	if !c.differs {
		c.has = slices.Grow(c.has[:0], n)[:n]
		got, err := io.ReadFull(c.file, c.has)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return 0, err
		}
		same := 0
		for same < got && c.has[same] == want[same] {
			same++
		}
		if open := bytes.LastIndexByte(want[:same], '{'); open >= 0 {
			c.from, c.shown, want = c.at+int64(open), c.shown[:0], want[open:]
		}
		c.differs = same < n
		c.at += int64(n)
	}
	c.shown = append(c.shown, want[:min(len(want), maxShown-len(c.shown))]...)
	if c.differs && len(c.shown) == maxShown {
		return 0, errDiffers
	}
	return n, nil
}

// end checks that the file has no further bytes.
func (c *comparer) end() error {
	if c.differs {
		return nil
	}
	n, err := io.ReadFull(c.file, make([]byte, 1))
	c.differs = n > 0
	if err == io.EOF {
		return nil
	}
	return err
}
