package content

import (
	"context"
	"io"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/intake"
	"ronbox/engines/edge/tables"
)

// PutRequest stores an object that the caller sends. The object is kept under the pseudo URL
// b3:<hex> and pinned.
type PutRequest struct {
	Body     io.Reader
	Size     int64     // bytes of Body; -1 if unknown
	Type     string    // media type, which site.Allowed permits; "" means site.Bytes
	Expect   b3.Digest // the digest that the bytes must have; zero accepts any
	Announce bool      // announce to other nodes that this node provides the object
}

// Put describes an object that was put.
type Put struct {
	tables.Stored
	New    bool // false if the object was stored before
	Copies int  // members of the cluster that have the object, this one included; 0: the node is alone
}

// Put stores the object of a request and pins it. The object is hashed while it is written. Put
// reads the body until ctx ends. It is idempotent; changed reports whether anything was written. It
// returns a *PinsError if the pin would exceed a cap, a *SizeError, a *DigestError, an error of
// Body, or one of errors.go.
func (s *Store) Put(ctx context.Context, r PutRequest) (p Put, changed bool, err error) {
	most := s.d.Config().Fill.MaxObjectBytes.Bytes()
	in := &intake.Intake{Dir: s.d.Dir, Room: s.Room(), Total: r.Size, Most: most}
	defer in.Drop()
	switch err = in.Read(ctx, r.Body); {
	case in.Disk != nil:
		return p, false, s.Failed(err)
	case err == intake.ErrMost:
		return p, false, &asset.SizeError{Max: in.Most}
	case err != nil:
		return p, false, err
	}
	digest, size := in.Temp.Sum()
	p.Stored = tables.RowOf(b3.Digest{}, 0, r.Type)
	if !r.Expect.IsZero() && r.Expect != digest {
		return p, false, &asset.DigestError{Want: r.Expect, Got: digest}
	}
	p.Stored = tables.RowOf(digest, size, r.Type)
	there, err := s.hasPut(ctx, p.Stored, r.Announce)
	if err != nil {
		return p, false, err
	}
	if there {
		p.Copies = s.copies(ctx, p.Stored)
		return p, false, nil
	}
	lost, err := s.isLost(ctx, digest)
	if err != nil {
		return p, false, err
	}
	temp, err := in.Seal()
	if err != nil {
		return p, false, s.Failed(err)
	}
	// temp is now owned by the writer.
	job := &installation{temp: temp, row: p.Stored, put: &putJob{announce: r.Announce}}
	if err = s.write(ctx, job); err != nil {
		return p, false, err
	}
	p.New, p.Copies = job.put.fresh || lost, s.copies(ctx, p.Stored)
	s.d.Owner.Event(asset.Event{Kind: "put", Of: p.URL, Size: size})
	return p, true, nil
}

// MayPin returns a *PinsError if the pin of an object of known size and digest would exceed a cap.
// The writer decides again; this keeps a caller from sending bytes for nothing.
func (s *Store) MayPin(ctx context.Context, r PutRequest) error {
	if r.Expect.IsZero() {
		return nil // it may be pinned already
	}
	pinned, err := s.Pinned(ctx, r.Expect.String())
	if err != nil || pinned {
		return err
	}
	return s.PinRoom().Refuse(max(0, r.Size), 1)
}

// hasPut reports whether a put of an object would change nothing: the object is stored, pinned and,
// if that is requested, announced.
func (s *Store) hasPut(ctx context.Context, row tables.Stored, announce bool) (bool, error) {
	o, stored, err := s.Open(ctx, asset.Target{URL: row.URL, Name: row.Path})
	if err != nil {
		if IsMiss(err) {
			err = nil
		}
		return false, err
	}
	o.Close()
	pinned, err := s.Pinned(ctx, row.URL)
	if err != nil || !pinned || stored.Digest != row.Digest {
		return false, err
	}
	if announce {
		_, err = tables.Find(ctx, s.d.Store, tables.Announced, row.Digest)
	}
	return err == nil, asset.Ignore(err, asset.ErrNotFound)
}

// isLost reports whether an object has a row and no file, as after a restore.
func (s *Store) isLost(ctx context.Context, d b3.Digest) (bool, error) {
	_, err := tables.Find(ctx, s.d.Store, tables.Blobs, d)
	return err == nil && s.d.Dir.Used(d).IsZero(), asset.Ignore(err, asset.ErrNotFound)
}

// putJob is the part of an installation that belongs to a put.
type putJob struct {
	announce bool
	fresh    bool // the object was not stored; valid after the job has succeeded
}

// PinRoom returns how much more may be pinned now.
func (s *Store) PinRoom() tables.PinRoom {
	has, _ := s.room.held()
	bytes, urls := s.d.Config().CAS.PinCaps()
	return tables.PinRoom{Bytes: max(0, bytes-has.Pinned), URLs: max(0, urls-has.Pins), MaxBytes: bytes, MaxURLs: urls}
}
