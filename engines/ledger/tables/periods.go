package tables

import (
	"iter"
	"math/bits"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// Buckets of closed periods. Journal and batches below the horizon are dropped, so nothing else
// leads to these rows.
var (
	bPeriods = &store.Bucket{Name: "ledger/periods", Append: true} // period: statement, and where its file is
	bBase    = &store.Bucket{Name: "ledger/base"}                  // generation, kind, key: the state after the horizon
	bClosed  = &store.Bucket{Name: "ledger/closed"}                // first entry: block of references
	bNlog    = &store.Bucket{Name: "ledger/nlog", Append: true}    // position: node of the log of names
)

// PeriodBuckets lists the buckets of closed periods. They are empty until a period is closed.
func PeriodBuckets() []*store.Bucket { return []*store.Bucket{bPeriods, bBase, bClosed, bNlog} }

// Horizon is the end of the last closed period, always the end of a batch. The zero Horizon is that
// of a ledger without closed periods.
type Horizon struct {
	Period     uint64
	Seq        uint64    // last record of the period
	Batch      uint64    // last batch of the period
	At         int64     // of that batch, Unix ns
	LastRoot   b3.Digest // of that batch
	Accounts   uint64    // opened up to there
	Assets     uint32    // declared up to there
	Generation uint64    // of the base
	Statement  b3.Digest // of the period
}

// Names returns the number of leaves of the log of names.
func (h Horizon) Names() uint64 { return h.Accounts + uint64(h.Assets) }

const horizonSize = 4*8 + 2*b3.Size + 8 + 4 + 8

var horizons = store.NewTable(bMeta, store.String[string](), fixed(1, horizonSize,
	func(b []byte, h *Horizon) {
		le.PutUint64(b, h.Period)
		le.PutUint64(b[8:], h.Seq)
		le.PutUint64(b[16:], h.Batch)
		le.PutUint64(b[24:], uint64(h.At))
		copy(b[32:], h.LastRoot[:])
		copy(b[64:], h.Statement[:])
		le.PutUint64(b[96:], h.Accounts)
		le.PutUint32(b[104:], h.Assets)
		le.PutUint64(b[108:], h.Generation)
	},
	func(b []byte, h *Horizon) error {
		*h = Horizon{
			Period: le.Uint64(b), Seq: le.Uint64(b[8:]), Batch: le.Uint64(b[16:]), At: int64(le.Uint64(b[24:])),
			Accounts: le.Uint64(b[96:]), Assets: le.Uint32(b[104:]), Generation: le.Uint64(b[108:]),
		}
		copy(h.LastRoot[:], b[32:])
		copy(h.Statement[:], b[64:])
		if h.Period == 0 || h.Batch < h.Period || h.Seq < h.Batch || h.At < 0 || h.Generation == 0 {
			return errNumber
		}
		return nil
	})).Summed()

// Below reports whether a record is in a closed period.
func (h Horizon) Below(seq uint64) bool { return h.Period != 0 && seq <= h.Seq }

// BelowBatch reports whether a batch is in a closed period.
func (h Horizon) BelowBatch(no uint64) bool { return h.Period != 0 && no <= h.Batch }

// GetHorizon reads the horizon. A row that is missing from a ledger with closed periods ends the
// view or the command in a RowError.
func GetHorizon(r store.Reader) Horizon {
	h, known := horizons.Get(r, keyHorizon)
	if f, _ := GetFormat(r); !known && f == FormatClosed {
		panic(missing(bMeta, []byte(keyHorizon)))
	}
	return h
}

// PutHorizon writes the horizon.
func PutHorizon(w *store.Writes, h Horizon) { horizons.Put(w, keyHorizon, h) }

// Kept returns the test for rows of the derived bucket b that a rebuild cannot make again: names
// given up to the horizon h, and references bound up to there. It returns nil if b has no such
// rows. A damaged row of a reference is not kept: the statements count what is lost.
func (h *Horizon) Kept(b *store.Bucket) func(key, value []byte) bool {
	switch {
	case h.Period == 0:
	case b == bRefs:
		return func(key, _ []byte) bool {
			k, err := refKeys().Decode(key)
			return err == nil &&
				(k.kind == kindAccount && k.ref <= h.Accounts || k.kind == kindAsset && k.ref <= uint64(h.Assets))
		}
	case b == bOnce:
		return func(key, value []byte) bool {
			value, err := store.CutSum(key, value)
			if err != nil {
				return false
			}
			o, err := onceValue().Decode(value)
			return err == nil && o.Seq <= h.Seq
		}
	}
	return nil
}

// Period is the row of a closed period.
type Period struct {
	Statement string    `cbor:"1,keyasint"` // its text
	CloseSeq  uint64    `cbor:"2,keyasint"` // of the OpClose
	ClosedAt  int64     `cbor:"3,keyasint"` // Unix ns
	File      string    `cbor:"4,keyasint"` // path, as it was given
	FileB3    b3.Digest `cbor:"5,keyasint"` // of the file
	ContentB3 b3.Digest `cbor:"6,keyasint"` // of its lines
	Bytes     uint64    `cbor:"7,keyasint"` // of the file
	Copies    int       `cbor:"8,keyasint"` // in the archive: 0 or 1
}

var periods = store.NewTable(bPeriods, store.U64(), store.CBOR[Period]()).Summed()

// GetPeriod reads the row of a period.
func GetPeriod(r store.Reader, n uint64) (Period, bool) { return periods.Get(r, n) }

// Periods walks the closed periods, from a number on.
func Periods(r store.Reader, from uint64) iter.Seq2[uint64, Period] { return periods.From(r, from) }

// PutPeriod writes the row of a period.
func PutPeriod(w *store.Writes, n uint64, p Period) { periods.Put(w, n, p) }

// StatementOf reads the statement of a period. A row that is missing, or of another period, ends
// the view or the command in a RowError. Period 0 has the zero Statement.
func StatementOf(r store.Reader, n uint64) record.Statement {
	if n == 0 {
		return record.Statement{}
	}
	p, known := GetPeriod(r, n)
	if !known {
		panic(missing(bPeriods, seqKey(n)))
	}
	s, err := record.ParseStatement(p.Statement)
	if err != nil {
		panic(wrong(bPeriods, seqKey(n), "%w", err))
	}
	if s.Period != n {
		panic(wrong(bPeriods, seqKey(n), "it is the statement of period %d", s.Period))
	}
	return s
}

// BatchBefore reads the header of the newest batch after h that is older than at, Unix ns, and ends
// with a record up to seq.
func BatchBefore(r store.Reader, h Horizon, at int64, seq uint64) (record.Batch, bool) {
	var found record.Batch
	good, end := h.Batch, LastBatch(r)+1 // batches up to good are as asked, those from end on are not
	for good+1 < end {
		no := good + (end-good)/2
		if b, known := Batch(r, no); known && b.At < at && b.Last() <= seq {
			good, found = no, b
		} else {
			end = no
		}
	}
	return found, found.No != 0
}

// CloseStep is what a closing does at present.
type CloseStep uint8

// The steps of a closing, in order. From Dropping on its period is closed.
const (
	Building CloseStep = iota + 1
	Exporting
	Checking
	Copying
	Sealing // all is ready, and the record that closes the period is to come
	Dropping
)

var closeSteps = [...]string{"idle", "building", "exporting", "checking", "copying", "closing", "dropping"}

// String returns the word for s.
func (s CloseStep) String() string {
	if int(s) < len(closeSteps) {
		return closeSteps[s]
	}
	return "unknown"
}

// Closing is the closing under way. The zero Closing is that of none.
type Closing struct {
	Step    CloseStep `cbor:"1,keyasint"`
	Period  uint64    `cbor:"2,keyasint"` // also the generation of its base
	Seq     uint64    `cbor:"3,keyasint"` // last record of the period
	Batch   uint64    `cbor:"4,keyasint"` // last batch of the period
	File    Period    `cbor:"5,keyasint"` // from Exporting on with the statement, from Sealing on with the rest
	Fast    bool      `cbor:"6,keyasint"` // without rests, and rows are dropped at once
	By      string    `cbor:"7,keyasint"` // who asked, for the audit
	Dropped DropPlace `cbor:"8,keyasint"`
	Bytes   uint64    `cbor:"9,keyasint"`  // that rows of closed periods take, about
	Rows    uint64    `cbor:"10,keyasint"` // their number, about
	// as Bytes and Rows, of the period that is being closed: they are added once it is
	OwnBytes uint64 `cbor:"11,keyasint"`
	OwnRows  uint64 `cbor:"12,keyasint"`
	Attempt  uint64 `cbor:"13,keyasint"` // random: tells this closing from another of the same period
	// incarnation of the node that gave the file its name, if no file had it before: there it goes
	// if the closing is canceled
	Placed string `cbor:"14,keyasint"`
}

// Reclaimable returns about how many bytes of closed periods are still to be dropped.
func (c *Closing) Reclaimable() int64 {
	if c.Rows == 0 || c.Dropped.Rows >= c.Rows {
		return 0
	}
	hi, lo := bits.Mul64(c.Bytes, c.Rows-c.Dropped.Rows)
	left, _ := bits.Div64(hi, lo, c.Rows)
	return int64(left)
}

// DropPlace is how far the rows of a closed period are dropped.
type DropPlace struct {
	Table  uint8  `cbor:"1,keyasint"` // of the tables in the order in which they are dropped
	Cursor []byte `cbor:"2,keyasint"` // key of the table
	Rows   uint64 `cbor:"3,keyasint"` // dropped so far, of all tables
}

var closings = store.NewTable(bMeta, store.String[string](), store.CBOR[Closing]()).Summed()

// GetClosing reads the closing under way.
func GetClosing(r store.Reader) Closing {
	c, _ := closings.Get(r, keyClosing)
	return c
}

// PutClosing writes the closing under way. The zero Closing deletes it.
func PutClosing(w *store.Writes, c Closing) {
	if c.Step == 0 {
		closings.Delete(w, keyClosing)
		return
	}
	closings.Put(w, keyClosing, c)
}

// PutFormatClosed notes that a period was closed.
func PutFormatClosed(w *store.Writes) { formats.Put(w, keyFormat, FormatClosed) }
