package content

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/intake"
)

// Shelf is the content store of a member of a cluster, as the other members reach it. On a member
// that does not lead no Engine runs, so a Shelf counts nothing: the rows of the objects come with
// the file, and the Engine counts them once the member leads. It then removes files without a row.
// A Shelf is safe for concurrent use.
type Shelf struct {
	cas   *cas.Dir
	spare int64        // bytes of the disk that stay free
	takes atomic.Int64 // bytes of objects that are being written
	free  func() (int64, error)
}

// NewShelf returns the shelf of the content store in a data directory. It does no I/O.
func NewShelf(cfg config.Config, dataDir string) *Shelf {
	s := &Shelf{cas: cas.In(dataDir, cas.Faults{}), spare: cfg.CAS.MinFree.Bytes() + cfg.CAS.Headroom()}
	s.free = s.cas.Free
	return s
}

// Prepare creates the folders and removes the remains of a crash. A member calls it once, when it
// starts: an Engine with Members does not remove them. It must not be called while an Engine or a
// Put uses the content store.
func (s *Shelf) Prepare() error { return s.cas.Prepare() }

// Put stores an object whose bytes must have a digest and a size. If the object is there, Put only
// reads body to its end, so that the connection can be used again. It returns a *DigestError,
// ErrFull, or an error of body or of the disk.
func (s *Shelf) Put(ctx context.Context, d b3.Digest, size int64, body io.Reader) error {
	if f, err := s.Open(d, size); err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(body, size))
		return errors.Join(err, f.Close())
	}
	return intake.Receive(ctx, s.cas, shelfRoom{s}, d, size, body, func(temp *cas.Temp) error {
		if err := s.cas.Place(temp); err != nil {
			temp.Drop()
			return err
		}
		return s.cas.Sync(d)
	})
}

// shelfRoom reserves room for the objects that are being written.
type shelfRoom struct{ *Shelf }

func (s shelfRoom) Reserve(_ context.Context, bytes int64) error {
	taken := s.takes.Add(bytes)
	free, err := s.free()
	if err == nil && free-s.spare < taken {
		err = fmt.Errorf("%w: %d bytes of the disk are free", asset.ErrFull, free)
	}
	if err != nil {
		s.takes.Add(-bytes)
	}
	return err
}

func (s shelfRoom) Release(bytes int64) { s.takes.Add(-bytes) }

// Open opens an object. It returns fs.ErrNotExist if it has no file, and a [cas.CorruptError] if
// the file has another size. The reader checks the bytes.
func (s *Shelf) Open(d b3.Digest, size int64) (*os.File, error) { return s.cas.Open(d, size) }
