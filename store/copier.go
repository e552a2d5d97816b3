package store

import (
	"context"
	"errors"
	"io"
	"os"

	"ronbox/appliance/b3"
)

// copyChunk is read, hashed and written at a time, bytes.
const copyChunk = 1 << 20

// copier is a writer that hashes what passes, tells of progress and ends with its context.
type copier struct {
	ctx      context.Context
	to       io.Writer // nil: hash only
	hash     *b3.Hasher
	done     int64
	total    int64
	progress func(done, total int64) // may be nil
	err      error                   // of the first Write that failed: bbolt passes on only its text
}

// Write passes p on.
func (c *copier) Write(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		c.err = context.Cause(c.ctx)
		return 0, c.err
	}
	if c.to != nil {
		if n, err := c.to.Write(p); err != nil {
			c.err = err
			return n, err
		}
	}
	_, _ = c.hash.Write(p) // never fails
	c.done += int64(len(p))
	if c.progress != nil {
		c.progress(c.done, c.total)
	}
	return len(p), nil
}

// ReadFrom lets io.Copy use large pieces.
func (c *copier) ReadFrom(r io.Reader) (n int64, err error) {
	buf := make([]byte, copyChunk)
	for {
		m, err := io.ReadFull(r, buf)
		if m > 0 {
			if _, werr := c.Write(buf[:m]); werr != nil {
				return n, werr
			}
			n += int64(m)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// hashFile hashes a whole file.
func hashFile(path string, c *copier) (b3.Digest, error) {
	f, err := os.Open(path)
	if err != nil {
		return b3.Digest{}, err
	}
	_, err = c.ReadFrom(f)
	return c.hash.Sum32(), errors.Join(err, f.Close())
}

// copyFile copies a whole file to a new one, synced.
func copyFile(from, to string, c *copier) (d b3.Digest, err error) {
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return d, err
	}
	c.to = dst
	if d, err = hashFile(from, c); err == nil {
		err = dst.Sync()
	}
	return d, errors.Join(err, dst.Close())
}
