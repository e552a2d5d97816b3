package tables

import (
	"ronbox/appliance/b3"
	"ronbox/store"
)

// bAnnounced lists the objects that this node announces to other nodes.
var bAnnounced = &store.Bucket{Name: "edge/announced", Class: store.Derived}

// AnnouncedRow is a row of edge/announced. Its key is the digest of the object.
type AnnouncedRow struct {
	At int64 `cbor:"1,keyasint"` // Unix ns of the last announcement; 0: none
}

// Announced is the table of edge/announced.
var Announced = store.NewTable(bAnnounced, digests, store.CBOR[AnnouncedRow]()).Summed().Alone()

// Announce records that objects were announced, or that their announcements have ended.
type Announce struct {
	Objects []b3.Digest
	Ended   bool
}

// Kind returns a name that is stored in the file.
func (Announce) Kind() string { return "edge.announced/1" }

// Apply skips an object whose announcement has ended meanwhile.
func (c Announce) Apply(r store.Reader, at store.Stamp, w *store.Writes) (struct{}, error) {
	for _, name := range c.Objects {
		_, known := Announced.Get(r, name)
		switch {
		case !known:
		case c.Ended:
			Announced.Delete(w, name)
		default:
			Announced.Put(w, name, AnnouncedRow{At: at.At})
		}
	}
	return struct{}{}, nil
}
