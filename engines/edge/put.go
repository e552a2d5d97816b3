package edge

import (
	"context"
	"io"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/intake"
	"ronbox/engines/edge/site"
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

// keyPrefix begins the pseudo URL of an object that has no URL.
const keyPrefix = "b3:"

// rowOf returns the row of an object that has no URL.
func rowOf(d b3.Digest, size int64, kind string) tables.Stored {
	return tables.Stored{URL: d.String(), Path: asset.PathOf(d), Digest: d, Size: size, Type: kind}
}

// parseKey parses the URL or the pseudo URL of a stored object, for Keep. A URL of a placement can
// only be removed; the placer adds it again if the registry still names the placement.
func parseKey(do asset.Action, text string) (key string, err error) {
	if do == asset.Remove && strings.HasPrefix(text, placedPrefix) {
		return text, nil
	}
	if !strings.HasPrefix(text, keyPrefix) {
		t, _, err := asset.ParseURL(text)
		return t.URL, err
	}
	if _, err := b3.Parse(text); err != nil {
		return "", &asset.PathError{Path: text, Reason: "must be b3: and 64 lower-case hex digits, or a URL"}
	}
	return text, nil
}

// Put stores the object of a request and pins it. The object is hashed while it is written. Put
// reads the body until ctx ends. It is idempotent. It returns a *PinsError if the pin would exceed
// a cap, a *SizeError, a *DigestError, ErrType, an error of Body, or one of errors.go.
func (e *Engine) Put(ctx context.Context, r PutRequest) (p Put, err error) {
	if err = e.mayPut(ctx, &r); err != nil {
		return p, err
	}
	in := &intake.Intake{Dir: e.cas, Room: storeRoom{e}, Total: r.Size, Most: e.Config().Fill.MaxObjectBytes.Bytes()}
	defer in.Drop()
	switch err = in.Read(ctx, r.Body); {
	case in.Disk != nil:
		return p, e.failed(err)
	case err == intake.ErrMost:
		return p, &asset.SizeError{Max: in.Most}
	case err != nil:
		return p, err
	}
	p.Stored = rowOf(b3.Digest{}, 0, r.Type)
	digest, size := in.Temp.Sum()
	if !r.Expect.IsZero() && r.Expect != digest {
		return p, &asset.DigestError{Want: r.Expect, Got: digest}
	}
	p.Stored = rowOf(digest, size, r.Type)
	there, err := e.hasPut(ctx, p.Stored, r.Announce)
	if err != nil {
		return p, err
	}
	if there {
		p.Copies = e.copies(ctx, p.Stored)
		return p, nil
	}
	lost, err := e.isLost(ctx, digest)
	if err != nil {
		return p, err
	}
	temp, err := in.Seal()
	if err != nil {
		return p, e.failed(err)
	}
	// temp is now owned by the writer.
	job := &writeJob{temp: temp, row: p.Stored, put: &putJob{announce: r.Announce}}
	if err = e.write(ctx, job); err != nil {
		return p, err
	}
	p.New, p.Copies = job.put.fresh || lost, e.copies(ctx, p.Stored)
	if e.events.Publish(asset.Event{Kind: "put", Of: p.URL, Size: size}); r.Announce {
		e.announce(ctx, digest)
	}
	return p, nil
}

// mayPut returns an error if the put cannot succeed. Otherwise it counts the request.
func (e *Engine) mayPut(ctx context.Context, r *PutRequest) error {
	if r.Type == "" {
		r.Type = site.Bytes
	}
	most := e.Config().Fill.MaxObjectBytes.Bytes()
	switch {
	case e.d.Amnesia:
		return asset.ErrAmnesia
	case !e.opened.Load():
		return asset.ErrStore
	case e.draining():
		return flow.ErrClosed
	case !site.Allowed(r.Type):
		return asset.ErrType
	case r.Size > most:
		return &asset.SizeError{Max: most}
	}
	if err := e.mayPin(ctx, r); err != nil {
		return err
	}
	return e.count()
}

// mayPin returns a *PinsError if the pin of an object of known size and digest would exceed a cap.
// The writer decides again; this keeps a caller from sending bytes for nothing.
func (e *Engine) mayPin(ctx context.Context, r *PutRequest) error {
	if r.Expect.IsZero() {
		return nil // it may be pinned already
	}
	pinned, err := e.isPinned(ctx, r.Expect.String())
	if err != nil || pinned {
		return err
	}
	return e.pinRoom().Refuse(max(0, r.Size), 1)
}

// hasPut reports whether a put of an object would change nothing: the object is stored, pinned and,
// if that is requested, announced.
func (e *Engine) hasPut(ctx context.Context, row tables.Stored, announce bool) (bool, error) {
	o, stored, err := e.stored(ctx, asset.Target{URL: row.URL, Name: row.Path})
	if err != nil {
		if isMiss(err) {
			err = nil
		}
		return false, err
	}
	o.Close()
	pinned, err := e.isPinned(ctx, row.URL)
	if err != nil || !pinned || stored.Digest != row.Digest {
		return false, err
	}
	if announce {
		_, err = tables.Find(ctx, e.d.Store, tables.Announced, row.Digest)
	}
	return err == nil, asset.Ignore(err, asset.ErrNotFound)
}

// isLost reports whether an object has a row and no file, as after a restore.
func (e *Engine) isLost(ctx context.Context, d b3.Digest) (bool, error) {
	_, err := tables.Find(ctx, e.d.Store, tables.Blobs, d)
	return err == nil && e.cas.Used(d).IsZero(), asset.Ignore(err, asset.ErrNotFound)
}

// putJob is the part of a writeJob that belongs to a put.
type putJob struct {
	announce bool
	fresh    bool // the object was not stored; valid after the job has succeeded
}

// tables.PinRoom returns how much more may be pinned now.
func (e *Engine) pinRoom() tables.PinRoom {
	has, _ := e.room.held()
	bytes, urls := e.Config().CAS.PinCaps()
	return tables.PinRoom{Bytes: max(0, bytes-has.Pinned), URLs: max(0, urls-has.Pins), MaxBytes: bytes, MaxURLs: urls}
}
