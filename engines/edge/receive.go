package edge

import (
	"context"
	"errors"
	"io"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
)

// Errors of an intake, besides those of the sender, the disk and its room.
var (
	errShort = errors.New("the object is shorter than announced")
	errLong  = errors.New("the object is longer than announced")
	errMost  = errors.New("the object is longer than allowed")
)

// reserver is where room for an object is reserved before its bytes are read.
type reserver interface {
	// reserve reserves bytes. It may wait until ctx ends.
	reserve(ctx context.Context, bytes int64) error
	// release releases reserved bytes.
	release(bytes int64)
}

// intake is an object that is being received: the bytes so far, hashed while they are written, and
// the room that is reserved for them. Every object enters the content store by one: from a host, a
// node, a caller or another member of a cluster.
type intake struct {
	dir      *cas.Dir
	room     reserver
	temp     *cas.Temp // nil before the first answer
	size     int64     // bytes in temp
	total    int64     // bytes of the whole; -1 if unknown
	most     int64     // bytes that the whole may have
	reserved int64     // bytes reserved in room
	guess    bool      // total is the word of a node alone: room is reserved as the bytes arrive
	disk     error     // of the last change of temp that failed
}

// read appends body, to its end. Room is reserved before it is read. An object of another length
// than total is refused with errShort or errLong, and one that exceeds most with errMost.
func (in *intake) read(ctx context.Context, body io.Reader) error {
	room := in.total
	if in.guess {
		room = min(room, growBy)
	}
	if err := in.extend(ctx, room); err != nil {
		return err
	}
	if in.temp == nil {
		if in.temp, in.disk = in.dir.Create(); in.disk != nil {
			return in.disk
		}
	}
	buf := make([]byte, 128<<10)
	for {
		n, err := body.Read(buf)
		if bad := in.append(ctx, buf[:n]); bad != nil {
			return bad
		}
		switch {
		case err == io.EOF && in.total >= 0 && in.size < in.total:
			return errShort
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func (in *intake) append(ctx context.Context, b []byte) error {
	total := in.size + int64(len(b))
	if in.total >= 0 && total > in.total {
		return errLong
	}
	if total > in.most {
		return errMost
	}
	if err := in.extend(ctx, total); err != nil {
		return err
	}
	var n int
	n, in.disk = in.temp.Write(b)
	in.size += int64(n) // also if the disk cuts the write short
	return in.disk
}

// extend reserves room for total bytes.
func (in *intake) extend(ctx context.Context, total int64) error {
	need := total - in.reserved
	if need <= 0 {
		return nil
	}
	if total > in.total || in.guess {
		need = max(need, growBy)
	}
	err := in.room.reserve(ctx, need)
	if err == nil {
		in.reserved += need
	}
	return err
}

// seal returns the bytes, ready to be installed. in no longer has them, but keeps their room until
// drop.
func (in *intake) seal() (*cas.Temp, error) {
	if in.disk = in.temp.Seal(); in.disk != nil {
		return nil, in.disk
	}
	temp := in.temp
	in.temp = nil
	return temp, nil
}

// drop removes the bytes, if seal has not taken them, and releases their room.
func (in *intake) drop() {
	if in.temp != nil {
		in.temp.Drop()
	}
	in.room.release(in.reserved)
	*in = intake{dir: in.dir, room: in.room, total: -1, most: in.most, guess: in.guess}
}

// receive writes an object that another member of the cluster sends, and passes it to place. The
// bytes must have a digest and a size: otherwise receive returns a *DigestError. After an error
// nothing is left of them.
func receive(ctx context.Context, dir *cas.Dir, room reserver, d b3.Digest, size int64, body io.Reader,
	place func(*cas.Temp) error) error {
	in := &intake{dir: dir, room: room, total: size, most: size}
	defer in.drop()
	err := in.read(ctx, body)
	if err != nil && !errors.Is(err, errShort) && !errors.Is(err, errLong) {
		return err
	}
	if got, _ := in.temp.Sum(); err != nil || got != d {
		return &asset.DigestError{Want: d, Got: got}
	}
	temp, err := in.seal()
	if err != nil {
		return err
	}
	return place(temp)
}
