package intake

import (
	"context"
	"errors"
	"io"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
)

// growBy is the number of bytes of one reservation for an object of unknown length.
const growBy = 8 << 20

// Errors of an intake, besides those of the sender, the disk and its room.
var (
	ErrShort = errors.New("the object is shorter than announced")
	ErrLong  = errors.New("the object is longer than announced")
	ErrMost  = errors.New("the object is longer than allowed")
)

// Room is where room for an object is reserved before its bytes are read.
type Room interface {
	// Reserve reserves bytes. It may wait until ctx ends.
	Reserve(ctx context.Context, bytes int64) error
	// Release releases reserved bytes.
	Release(bytes int64)
}

// Intake is an object that is being received: the bytes so far, hashed while they are written, and
// the room that is reserved for them. Every object enters the content store by one: from a host, a
// node, a caller or another member of a cluster.
type Intake struct {
	Dir      *cas.Dir
	Room     Room
	Temp     *cas.Temp // nil before the first answer
	Size     int64     // bytes in Temp
	Total    int64     // bytes of the whole; -1 if unknown
	Most     int64     // bytes that the whole may have
	reserved int64     // bytes reserved in Room
	Guess    bool      // Total is the word of a node alone: room is reserved as the bytes arrive
	Disk     error     // of the last change of Temp that failed
}

// Read appends body, to its end. Room is reserved before it is read. An object of another length
// than Total is refused with ErrShort or ErrLong, and one that exceeds Most with ErrMost.
func (in *Intake) Read(ctx context.Context, body io.Reader) error {
	room := in.Total
	if in.Guess {
		room = min(room, growBy)
	}
	if err := in.extend(ctx, room); err != nil {
		return err
	}
	if in.Temp == nil {
		if in.Temp, in.Disk = in.Dir.Create(); in.Disk != nil {
			return in.Disk
		}
	}
	buf := make([]byte, 128<<10)
	for {
		n, err := body.Read(buf)
		if bad := in.append(ctx, buf[:n]); bad != nil {
			return bad
		}
		switch {
		case err == io.EOF && in.Total >= 0 && in.Size < in.Total:
			return ErrShort
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

func (in *Intake) append(ctx context.Context, b []byte) error {
	total := in.Size + int64(len(b))
	if in.Total >= 0 && total > in.Total {
		return ErrLong
	}
	if total > in.Most {
		return ErrMost
	}
	if err := in.extend(ctx, total); err != nil {
		return err
	}
	var n int
	n, in.Disk = in.Temp.Write(b)
	in.Size += int64(n) // also if the disk cuts the write short
	return in.Disk
}

// extend reserves room for total bytes.
func (in *Intake) extend(ctx context.Context, total int64) error {
	need := total - in.reserved
	if need <= 0 {
		return nil
	}
	if total > in.Total || in.Guess {
		need = max(need, growBy)
	}
	err := in.Room.Reserve(ctx, need)
	if err == nil {
		in.reserved += need
	}
	return err
}

// Trim releases the room that the bytes so far do not need.
func (in *Intake) Trim() {
	in.Room.Release(in.reserved - in.Size)
	in.reserved = in.Size
}

// Seal returns the bytes, ready to be installed. in no longer has them, but keeps their room until
// Drop.
func (in *Intake) Seal() (*cas.Temp, error) {
	if in.Disk = in.Temp.Seal(); in.Disk != nil {
		return nil, in.Disk
	}
	temp := in.Temp
	in.Temp = nil
	return temp, nil
}

// Drop removes the bytes, if Seal has not taken them, and releases their room.
func (in *Intake) Drop() {
	if in.Temp != nil {
		in.Temp.Drop()
	}
	in.Room.Release(in.reserved)
	*in = Intake{Dir: in.Dir, Room: in.Room, Total: -1, Most: in.Most, Guess: in.Guess}
}

// Receive writes an object that another member of the cluster sends, and passes it to place. The
// bytes must have a digest and a size: otherwise Receive returns a *DigestError. After an error
// nothing is left of them.
func Receive(ctx context.Context, dir *cas.Dir, room Room, d b3.Digest, size int64, body io.Reader,
	place func(*cas.Temp) error) error {
	in := &Intake{Dir: dir, Room: room, Total: size, Most: size}
	defer in.Drop()
	err := in.Read(ctx, body)
	if err != nil && !errors.Is(err, ErrShort) && !errors.Is(err, ErrLong) {
		return err
	}
	if got, _ := in.Temp.Sum(); err != nil || got != d {
		return &asset.DigestError{Want: d, Got: got}
	}
	temp, err := in.Seal()
	if err != nil {
		return err
	}
	return place(temp)
}
