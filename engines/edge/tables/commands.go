package tables

import (
	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/store"
)

// Keep pins, unpins or removes URLs. Only the writer sends it, so its counts match the rows.
type Keep struct {
	Do                 asset.Action
	URLs               []string // distinct
	Pinned, Pins       int64    // bytes and URLs that are pinned
	MaxPinned, MaxPins int64    // caps
}

// Kept describes the effect of a Keep.
type Kept struct {
	asset.KeepResult
	Change
	Ended []b3.Digest // objects that are no longer announced
}

// Kind returns a name that is stored in the file.
func (Keep) Kind() string { return "edge.keep/1" }

// Apply returns a PinsError if a pin would exceed a cap.
func (c Keep) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (done Kept, err error) {
	var gone []Stored
	for _, url := range c.URLs {
		row, listed := Keys.Get(r, KeyOf(url))
		path, stored := Paths.Get(r, PathKey(url))
		if !listed && !stored || c.Do == asset.Pin && !stored {
			done.Missing = append(done.Missing, url)
			continue
		}
		done.Changed = append(done.Changed, url)
		if !listed {
			row = KeyRow{Size: path.Size}
		}
		if d, err := b3.Parse(url); err == nil && c.Do != asset.Pin {
			done.endAnnounced(r, w, d)
		}
		next := row
		next.Pinned = c.Do == asset.Pin
		switch {
		case c.Do == asset.Remove:
			row.drop(w, url, &done.Change)
			gone = append(gone, path)
		case !stored: // without a pin, the row has nothing to describe
			row.drop(w, url, &done.Change)
		case next.Pinned != row.Pinned:
			next.put(w, url, row, &done.Change)
		}
	}
	full := &asset.PinsError{
		Bytes: c.Pinned + done.Pinned, URLs: c.Pins + done.Pins, MaxBytes: c.MaxPinned, MaxPinned: c.MaxPins,
	}
	if done.Pins > 0 && (full.Bytes > c.MaxPinned || full.URLs > c.MaxPins) {
		return done, full
	}
	done.removePaths(r, w, gone)
	return done, nil
}

// endAnnounced removes an object from those that are announced.
func (done *Kept) endAnnounced(r store.Reader, w *store.Writes, d b3.Digest) {
	if _, known := Announced.Get(r, d); known {
		Announced.Delete(w, d)
		done.Ended = append(done.Ended, d)
	}
}

// Renew records that a host has confirmed the object of a URL.
type Renew struct{ Row Stored }

// Kind returns a name that is stored in the file.
func (Renew) Kind() string { return "edge.renew/1" }

// Apply does nothing if the URL leads to another object by now.
func (c Renew) Apply(r store.Reader, at store.Stamp, w *store.Writes) (done Change, err error) {
	key := PathKey(c.Row.URL)
	row, known := Paths.Get(r, key)
	if !known || row.Digest != c.Row.Digest {
		return done, nil
	}
	Paths.Put(w, key, c.Row)
	if listed, known := Keys.Get(r, KeyOf(c.Row.URL)); known {
		next := listed
		next.Fetched = at.At
		next.put(w, c.Row.URL, listed, &done)
	}
	done.Moved = true
	return done, nil
}

// Place adds URLs of placements, which are pinned.
type Place struct {
	Rows     []Stored
	Announce b3.Digest
	Left     PinRoom
}

// Placed describes the effect of a Place.
type Placed struct {
	Change
	Missing []string
}

// Kind returns a name that is stored in the file.
func (Place) Kind() string { return "edge.place/1" }

// Apply returns a *PinsError if the pins would exceed a cap.
func (c Place) Apply(r store.Reader, at store.Stamp, w *store.Writes) (done Placed, err error) {
	for _, row := range c.Rows {
		b, stored := Blobs.Get(r, row.Digest)
		if !stored || row.Size >= 0 && row.Size != b.Size {
			done.Missing = append(done.Missing, row.URL)
			continue
		}
		row.Size, row.Type = b.Size, b.Type
		done.Add(row.install(r, at, w, true))
	}
	if err := c.Left.Refuse(done.Pinned, done.Pins); err != nil {
		return Placed{}, err
	}
	if _, known := Announced.Get(r, c.Announce); !c.Announce.IsZero() && !known {
		Announced.Put(w, c.Announce, AnnouncedRow{})
	}
	return done, nil
}

// Put adds the row of an object that was put, and pins it.
type Put struct {
	Row      Stored
	Announce bool
	Left     PinRoom
}

// Kind returns a name that is stored in the file.
func (Put) Kind() string { return "edge.put/1" }

// Apply returns a *PinsError if the pin would exceed a cap.
func (c Put) Apply(r store.Reader, at store.Stamp, w *store.Writes) (Change, error) {
	done := c.Row.install(r, at, w, true)
	if err := c.Left.Refuse(done.Pinned, done.Pins); err != nil {
		return Change{}, err
	}
	if _, known := Announced.Get(r, c.Row.Digest); c.Announce && !known {
		Announced.Put(w, c.Row.Digest, AnnouncedRow{})
	}
	return done, nil
}

// PinRoom holds the bytes and URLs that may still be pinned, with the caps.
type PinRoom struct {
	Bytes, URLs       int64
	MaxBytes, MaxURLs int64
}

// Pin subtracts the pin of an object from p, if it fits. listed is the row of its URL.
func (p *PinRoom) Pin(row Stored, listed KeyRow) {
	has := listed.Pins()
	bytes, urls := row.Size-has.Pinned, 1-has.Pins
	if p.Refuse(bytes, urls) == nil {
		p.Bytes, p.URLs = p.Bytes-bytes, p.URLs-urls
	}
}

// Refuse returns a *PinsError if so many more pins do not fit.
func (p PinRoom) Refuse(bytes, urls int64) error {
	if bytes <= p.Bytes && urls <= p.URLs || bytes <= 0 && urls <= 0 {
		return nil
	}
	return &asset.PinsError{
		Bytes: p.MaxBytes - p.Bytes + bytes, URLs: p.MaxURLs - p.URLs + urls,
		MaxBytes: p.MaxBytes, MaxPinned: p.MaxURLs,
	}
}
