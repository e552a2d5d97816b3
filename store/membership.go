package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
	"ronbox/appliance/clock"
	"ronbox/store/lock"
)

// Membership is the configuration of the cluster and the place in its log that the file of a
// clustered node holds. The file of a node alone has none.
type Membership struct {
	Index   uint64 // place of the configuration in the log
	Raw     []byte // the configuration, in the form of the log
	Applied Applied
	Log     []byte // id that BindLog has recorded, nil if none; not used by SetMembership and Reincarnate
}

// memberRow is the local row of the configuration.
type memberRow struct {
	Index uint64 `cbor:"1,keyasint"`
	Raw   []byte `cbor:"2,keyasint"`
}

// origins are the values of Applied.Origin, by the last byte of the row.
var origins = []string{"", "init", "install"}

const appliedLen = 2*8 + b3.Size + 1 // without its checksum

// row encodes the place.
func (a Applied) row() []byte {
	b := make([]byte, 0, appliedLen+SumSize)
	b = binary.BigEndian.AppendUint64(b, a.Index)
	b = binary.BigEndian.AppendUint64(b, a.Term)
	b = append(b, a.Chain[:]...)
	return AddSum(keyApplied, append(b, byte(slices.Index(origins, a.Origin))))
}

func parseApplied(row []byte) (a Applied, err error) {
	b, err := CutSum(keyApplied, row)
	if err != nil {
		return a, err
	}
	if len(b) != appliedLen || int(b[appliedLen-1]) >= len(origins) {
		return a, errors.New("it has another form")
	}
	return Applied{
		Place:  Place{Index: binary.BigEndian.Uint64(b), Term: binary.BigEndian.Uint64(b[8:])},
		Chain:  b3.Digest(b[16:]),
		Origin: origins[b[appliedLen-1]],
	}, nil
}

// check returns an error if no file may hold m.
func (m *Membership) check() error {
	a := m.Applied
	if m.Index == 0 || a.Index == 0 || a.Term == 0 || !slices.Contains(origins, a.Origin) {
		return fmt.Errorf("store: a membership at %d, applied %d of term %d, origin %q", m.Index, a.Index, a.Term,
			a.Origin)
	}
	if len(m.Raw) == 0 || len(m.Raw) > MaxValue {
		return fmt.Errorf("store: a configuration of %d bytes", len(m.Raw))
	}
	return nil
}

// readMembership returns the membership that the file holds, or nil for the file of a node alone. A
// file with one of its two rows is damaged: the disk may have changed the key of the other.
func readMembership(tx *bolt.Tx) (*Membership, error) {
	local := localRows(tx)
	raw := local.Get(keyMembers)
	if raw == nil && local.Get(keyApplied) == nil {
		return nil, nil
	}
	var row memberRow
	if err := decodeSummed(keyMembers, raw, &row); err != nil {
		return nil, fmt.Errorf("%w: row members: %w", ErrCorrupt, err)
	}
	applied, err := parseApplied(local.Get(keyApplied))
	if err != nil {
		return nil, fmt.Errorf("%w: row applied: %w", ErrCorrupt, err)
	}
	m := &Membership{Index: row.Index, Raw: row.Raw, Applied: applied}
	if raw = local.Get(keyLog); raw == nil {
		return m, nil
	}
	id, err := CutSum(keyLog, raw)
	if err != nil {
		return nil, fmt.Errorf("%w: row log: %w", ErrCorrupt, err)
	}
	m.Log = bytes.Clone(id)
	return m, nil
}

// writeMembership writes the rows of m, or deletes them if m is nil. The file is then bound to no
// log.
func writeMembership(local *bolt.Bucket, m *Membership) error {
	if err := local.Delete(keyLog); err != nil {
		return err
	}
	if m == nil {
		return errors.Join(local.Delete(keyMembers), local.Delete(keyApplied))
	}
	return errors.Join(putMembers(local, &memberRow{m.Index, m.Raw}), local.Put(keyApplied, m.Applied.row()))
}

func putMembers(local *bolt.Bucket, row *memberRow) error {
	raw, err := encodeSummed(keyMembers, *row)
	if err != nil {
		return err
	}
	return local.Put(keyMembers, raw)
}

// ReadMembership returns the membership of a file, or nil if the file is that of a node alone. It
// returns ErrLocked if a process has the file open for writing.
func ReadMembership(path string) (*Membership, error) {
	r, err := openReader(path, opening{uncached: true}, Schema)
	if err != nil {
		return nil, err
	}
	return r.members, r.Close()
}

// SetMembership makes the file that of a clustered node, or with nil that of a node alone. It
// returns ErrLocked if a process has the file open, and ErrSchema if the file must be migrated
// first. With Origin "install" the file counts as closed in order, because its receiver has
// verified it.
func SetMembership(path string, m *Membership) error {
	if m != nil {
		if err := m.check(); err != nil {
			return err
		}
	}
	return writeOffline(path, func(tx *bolt.Tx, info *Info) error {
		if m != nil && m.Applied.Origin == "install" {
			info.Clean = true
		}
		return writeMembership(localRows(tx), m)
	})
}

// Reincarnate sets a new incarnation of the file of a clustered node, with an audit row, and the
// configuration of m. Its place is that of the file in the next term, with Origin "init"; m.Applied
// is not used. With nil the file becomes that of a node alone.
func Reincarnate(path string, by Event, m *Membership) (after Info, err error) {
	now := time.Now()
	err = writeOffline(path, func(tx *bolt.Tx, info *Info) error {
		was, err := readMembership(tx)
		if err == nil && was == nil {
			err = fmt.Errorf("store: %s belongs to no cluster", path)
		}
		if err == nil {
			info.Incarnation, err = newID(now)
		}
		if err != nil {
			return err
		}
		p := info.position()
		p.at = offlineStamp(now, p.at)
		if _, err := appendAudit(tx.Bucket([]byte(auditBucket.Name)), &p, noRing, p.at, by.bounded()); err != nil {
			return err
		}
		*info = *info.with(p)
		after = *info
		if m == nil {
			return writeMembership(localRows(tx), nil)
		}
		next := &Membership{Index: m.Index, Raw: m.Raw, Applied: was.Applied}
		next.Applied.Term, next.Applied.Origin = was.Applied.Term+1, "init"
		return errors.Join(next.check(), writeMembership(localRows(tx), next))
	})
	return after, err
}

// FollowOffline applies entries of the log to the file of a clustered node that no process has
// open, as [Store.Follow] does. It returns ErrDiverged for an entry that does not follow the file.
func FollowOffline(path string, es []Placed) error {
	return writeOffline(path, func(tx *bolt.Tx, info *Info) error {
		m, err := readMembership(tx)
		if err == nil && m == nil {
			err = fmt.Errorf("store: %s belongs to no cluster", path)
		}
		if err != nil {
			return err
		}
		any := func(*entry) error { return nil } // the next boot declares the buckets
		p, err := checkEntries(es, info.position(), m.Applied, any)
		if err != nil {
			return err
		}
		declared, err := readBuckets(tx)
		if err != nil {
			return err
		}
		if *info, err = applyEntries(tx, p.entries, declared, p.to); err != nil {
			return err
		}
		return localRows(tx).Put(keyApplied, p.applied.row())
	})
}

// applyEntries writes the rows of entries that lead to the given position, outside of a Store, and
// returns the state that results.
func applyEntries(tx *bolt.Tx, es []entry, declared []*Bucket, to position) (info Info, err error) {
	var names nameLog
	for i := range es {
		for _, o := range es[i].ops {
			at := slices.IndexFunc(declared, func(b *Bucket) bool { return b.Name == o.bucket })
			if at >= 0 { // the next boot counts the names of another one
				names.note(declared[at], o.rows(tx), o)
			}
			if err := o.apply(tx); err != nil {
				return info, fmt.Errorf("merge into %s: %w", o.bucket, err)
			}
		}
	}
	if err := names.write(tx); err != nil {
		return info, err
	}
	if info, err = readInfo(tx); err != nil {
		return info, err
	}
	if info.position() != to {
		return info, fmt.Errorf("%w: its rows lead to command %d, not to command %d", ErrDiverged, info.Seq, to.seq)
	}
	return info, nil
}

// rows returns the bucket or sub-bucket that o changes, or nil if it does not exist.
func (o op) rows(tx *bolt.Tx) *bolt.Bucket {
	b := tx.Bucket([]byte(o.bucket))
	if b != nil && o.sub != "" {
		b = b.Bucket([]byte(o.sub))
	}
	return b
}

// apply makes the change in a file.
func (o op) apply(tx *bolt.Tx) error {
	name, sub := []byte(o.bucket), []byte(o.sub)
	b, err := tx.CreateBucketIfNotExists(name)
	switch {
	case err != nil:
		return err
	case o.kind == opClear:
		if err = tx.DeleteBucket(name); err == nil {
			_, err = tx.CreateBucket(name)
		}
		return err
	case o.sub != "" && b.Bucket(sub) == nil && o.kind != opPut:
		return nil
	case o.kind == opDrop:
		return b.DeleteBucket(sub)
	case o.sub != "":
		if b, err = b.CreateBucketIfNotExists(sub); err != nil {
			return err
		}
	}
	if o.kind == opDelete {
		return b.Delete(o.key)
	}
	return b.Put(o.key, o.value)
}

// writeOffline runs fn in one transaction of a file that no process has open, and then writes the
// Info that fn has changed. As every writer it marks the file as in use until the rows are synced.
func writeOffline(path string, fn func(*bolt.Tx, *Info) error) (err error) {
	if _, err := os.Stat(path); err != nil { // before the folder is made
		return err
	}
	path, folder, err := lock.Folder(path)
	if err != nil {
		return err
	}
	defer func() { err = closing(folder, err) }()
	db, err := openBolt(path, &opening{uncached: true})
	if err != nil {
		return err
	}
	var info Info
	err = guarded(func() error {
		return update(db, func(tx *bolt.Tx) (err error) {
			if info, err = readInfo(tx); err != nil {
				return err
			}
			if info.Schema != Schema {
				return fmt.Errorf("%w: %s has schema %d, not %d", ErrSchema, path, info.Schema, Schema)
			}
			if err := fn(tx, &info); err != nil {
				return err
			}
			used := info
			used.Clean = false
			return writeInfo(tx, used)
		})
	})
	if err == nil && info.Clean {
		err = update(db, func(tx *bolt.Tx) error { return putClean(tx, true) })
	}
	return roomError(closing(db, err))
}

// offlineStamp returns the stamp of a change to a file at rest, Unix ns. last is the newest stamp
// in the file and now the wall clock, which is believed as it is at the boot of a node: one command
// under a clock that is years ahead must not take the file there.
func offlineStamp(now time.Time, last int64) int64 {
	c := clock.New(clock.Options{Read: func() (time.Time, time.Duration) { return now, 0 }})
	c.Begin(time.Unix(0, last))
	return max(c.Now().UnixNano(), last+1)
}

// KeepMembers keeps a committed configuration of the cluster in memory, unless the file has it or a
// later one. The next group, Follow, boot or Close writes it.
func (s *Store) KeepMembers(index uint64, raw []byte) {
	row := &memberRow{index, bytes.Clone(raw)}
	for {
		old := s.members.Load()
		if old != nil && old.Index >= index || s.members.CompareAndSwap(old, row) {
			return
		}
	}
}

// putKept writes the configuration that KeepMembers has kept.
func (s *Store) putKept(tx *bolt.Tx) error {
	if m := s.unwrittenMembers(); m != nil {
		return putMembers(localRows(tx), m)
	}
	return nil
}

// unwrittenMembers returns the configuration that the file lacks, or nil.
func (s *Store) unwrittenMembers() *memberRow {
	if m := s.members.Load(); m != nil && m.Index > s.membersAt {
		return m
	}
	return nil
}

// Applied returns the place of the last entry in the file, as of the last commit.
func (s *Store) Applied() Applied {
	if a := s.applied.Load(); a != nil {
		return *a
	}
	return Applied{}
}
