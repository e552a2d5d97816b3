package content

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
	"ronbox/engines/edge/intake"
	"ronbox/engines/edge/tables"
)

// Members reaches the content stores of the other members of a cluster, which all have the rows of
// this one. Its methods are safe for concurrent use and return soon after ctx ends.
type Members interface {
	// Copy sends an object to the other members that answer, and returns how many have taken it. It
	// waits for the first one, and only briefly for the others. It returns 0 if none could be
	// reached soon. open opens the object once for each member that is asked.
	Copy(ctx context.Context, d b3.Digest, size int64, open func() (io.ReadCloser, error)) int
	// Fetch calls take with the bytes that one member after the other sends, until take returns
	// nil. It returns ErrNotFound if every other member has answered that it does not have the
	// object.
	Fetch(ctx context.Context, d b3.Digest, size int64, take func(io.Reader) error) error
}

// regainWithin bounds the time for which an object is fetched from other members. Members has
// shorter bounds of its own.
const regainWithin = 10 * time.Minute

// copies returns how many members of the cluster have an object that was put, or 0 on a node alone.
// The rows are committed before, so that a member that is elected keeps the file.
func (s *Store) copies(ctx context.Context, row tables.Stored) int {
	if s.d.Members == nil {
		return 0
	}
	return 1 + s.d.Members.Copy(ctx, row.Digest, row.Size, func() (io.ReadCloser, error) {
		return s.d.Dir.Open(row.Digest, row.Size)
	})
}

// loadAnywhere is load, but fetches an object without a file from the other members of the cluster.
func (s *Store) loadAnywhere(ctx context.Context, name b3.Digest, size int64) (*asset.Object, error) {
	o, err := s.load(ctx, name, size)
	if s.d.Members == nil || !errors.Is(err, fs.ErrNotExist) {
		return o, err
	}
	if bad := s.regain(ctx, name, size); bad != nil {
		s.d.Log.Debug("regain", "digest", name.String(), "reason", bad.Error())
		return o, err
	}
	return s.load(ctx, name, size)
}

// regain fetches the file of an object that has a row from the other members. Concurrent callers
// share one fetch. It returns ErrNotFound if no member has the file.
func (s *Store) regain(ctx context.Context, d b3.Digest, size int64) error {
	switch {
	case !s.opened.Load():
		return asset.ErrStore
	case s.d.Owner.Draining():
		return flow.ErrClosed
	}
	_, err := s.regains.Do(ctx, d, struct{}{}, regainWithin, func(ctx context.Context) (none struct{}, err error) {
		if !s.d.Dir.Used(d).IsZero() {
			return none, nil
		}
		return none, s.d.Members.Fetch(ctx, d, size, func(body io.Reader) error {
			return intake.Receive(ctx, s.d.Dir, diskRoom{s}, d, size, body, func(temp *cas.Temp) error {
				return s.write(ctx, &regained{temp, d, size})
			})
		})
	})
	return BusyIfFull(err)
}

// diskRoom reserves room on the disk only: the row of an object that is regained counts for the
// quota already.
type diskRoom struct{ s *Store }

func (r diskRoom) Reserve(_ context.Context, bytes int64) error {
	_, disk, err := r.s.bounds()
	if err == nil && !r.s.room.take(bytes, math.MaxInt64, disk) {
		err = asset.ErrFull
	}
	return err
}

func (r diskRoom) Release(bytes int64) { r.s.room.reserve(-bytes) }

// regained is the missing file of an object that has a row, as another member has sent it.
type regained struct {
	temp *cas.Temp // sealed; owned by the writer
	name b3.Digest
	size int64
}

func (j *regained) drop() { j.temp.Drop() }

// apply names the file, unless its row was removed meanwhile.
func (j *regained) apply(ctx context.Context, s *Store) error {
	return s.repairing(ctx, func() error {
		if _, err := tables.Find(ctx, s.d.Store, tables.Blobs, j.name); err != nil {
			return err
		}
		err := s.d.Dir.Place(j.temp)
		if err == nil {
			err = s.d.Dir.Sync(j.name)
		}
		if err == nil && j.size > hotObject {
			s.sums.add(j.name) // it was hashed while it was written
		}
		return s.Failed(err)
	})
}
