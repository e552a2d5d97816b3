package edge

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

// newMembers declares what a member of a cluster needs.
func (e *Engine) newMembers() {
	if e.d.Members == nil {
		return
	}
	e.regains = flow.NewFlight[b3.Digest, struct{}, struct{}](e.d.Catalog, flow.FlightSpec{
		Service: service, Name: "members", Shards: 16, Waiters: maxWaiters, Calls: e.boot.Queues.WorkTX,
	})
}

// copies returns how many members of the cluster have an object that was put, or 0 on a node alone.
// The rows are committed before, so that a member that is elected keeps the file.
func (e *Engine) copies(ctx context.Context, row tables.Stored) int {
	if e.d.Members == nil {
		return 0
	}
	return 1 + e.d.Members.Copy(ctx, row.Digest, row.Size, func() (io.ReadCloser, error) {
		return e.cas.Open(row.Digest, row.Size)
	})
}

// loadAnywhere is load, but fetches an object without a file from the other members of the cluster.
func (e *Engine) loadAnywhere(ctx context.Context, name b3.Digest, size int64) (*asset.Object, error) {
	o, err := e.load(ctx, name, size)
	if e.d.Members == nil || !errors.Is(err, fs.ErrNotExist) {
		return o, err
	}
	if bad := e.regain(ctx, name, size); bad != nil {
		e.log.Debug("regain", "digest", name.String(), "reason", bad.Error())
		return o, err
	}
	return e.load(ctx, name, size)
}

// regain fetches the file of an object that has a row from the other members. Concurrent callers
// share one fetch. It returns ErrNotFound if no member has the file.
func (e *Engine) regain(ctx context.Context, d b3.Digest, size int64) error {
	switch {
	case !e.opened.Load():
		return asset.ErrStore
	case e.draining():
		return flow.ErrClosed
	}
	_, err := e.regains.Do(ctx, d, struct{}{}, regainWithin, func(ctx context.Context) (none struct{}, err error) {
		if !e.cas.Used(d).IsZero() {
			return none, nil
		}
		return none, e.d.Members.Fetch(ctx, d, size, func(body io.Reader) error {
			return intake.Receive(ctx, e.cas, diskRoom{e}, d, size, body, func(temp *cas.Temp) error {
				return e.write(ctx, &writeJob{temp: temp, row: rowOf(d, size, ""), regain: true})
			})
		})
	})
	return busyIfFull(err)
}

// diskRoom reserves room on the disk only: the row of an object that is regained counts for the
// quota already.
type diskRoom struct{ e *Engine }

func (r diskRoom) Reserve(_ context.Context, bytes int64) error {
	_, disk, err := r.e.bounds()
	if err == nil && !r.e.room.take(bytes, math.MaxInt64, disk) {
		err = asset.ErrFull
	}
	return err
}

func (r diskRoom) Release(bytes int64) { r.e.room.reserve(-bytes) }

// placeRegained names a file that another member has sent, unless its row was removed meanwhile. It
// is called by the task cas_writer.
func (e *Engine) placeRegained(ctx context.Context, j *writeJob) error {
	name := j.row.Digest
	if _, err := tables.Find(ctx, e.d.Store, tables.Blobs, name); err != nil {
		return err
	}
	err := e.cas.Place(j.temp)
	if err == nil {
		err = e.cas.Sync(name)
	}
	if err == nil && j.row.Size > hotObject {
		e.sums.add(name) // it was hashed while it was written
	}
	return e.failed(err)
}
