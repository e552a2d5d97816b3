package store

import (
	"errors"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// Scratch is a state in memory to try commands on: one transaction that is never committed. Tests of engines use it through storetest;
// it serves one goroutine, and any command may touch any of its buckets.
type Scratch struct {
	db *bolt.DB
	tx *bolt.Tx
	g  group
}

// NewScratch makes an empty state with the given buckets. Stamps begin at now.
func NewScratch(now time.Time, buckets ...*Bucket) (*Scratch, error) {
	fd, err := unix.MemfdCreate("ronbox-scratch", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "ronbox-scratch")
	db, err := bolt.Open(f.Name(), 0o600, &bolt.Options{
		PageSize: PageSize, FreelistType: bolt.FreelistMapType, NoSync: true, NoStatistics: true, InitialMmapSize: 256 << 20,
		OpenFile: func(string, int, os.FileMode) (*os.File, error) { return f, nil },
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	c := &Scratch{db: db}
	if err := c.begin(now, buckets); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return c, nil
}

func (c *Scratch) begin(now time.Time, buckets []*Bucket) (err error) {
	s := New(DefaultConfig(), Options{Now: func() time.Time { return now }})
	s.schema = nil
	s.info.Store(&Info{Schema: Schema, AuditFirst: 1})
	if c.tx, err = c.db.Begin(true); err != nil {
		return err
	}
	for _, b := range append([]*Bucket{metaBucket, auditBucket}, buckets...) {
		if _, err := c.tx.CreateBucketIfNotExists([]byte(b.Name)); err != nil {
			return err
		}
	}
	c.g.open(s)
	c.g.use(c.tx)
	return nil
}

// Register adds a group for GroupOf to find; its hooks do not run.
func (c *Scratch) Register(g Group) { c.g.reader.groups = append(c.g.reader.groups, g) }

// Reader sees every command tried so far.
func (c *Scratch) Reader() Reader { return c.g.reader }

// Close drops the state.
func (c *Scratch) Close() error {
	return errors.Join(c.tx.Rollback(), c.db.Close())
}

// Try applies one command and, if it returns nil, merges it.
func Try[R any](c *Scratch, cmd Command[R]) (R, error) {
	q := &request[R]{body: body[R]{head: head{kind: cmd.Kind()}, cmd: cmd}}
	err := c.g.step(q, c.g.s.now().UnixNano())
	if err == nil {
		err = q.err
	}
	if err == nil {
		err = c.g.fault
	}
	return q.result, err
}
