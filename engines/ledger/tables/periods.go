package tables

import (
	"iter"

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

// GetHorizon reads the horizon.
func GetHorizon(r store.Reader) Horizon {
	h, _ := horizons.Get(r, keyHorizon)
	return h
}

// PutHorizon writes the horizon.
func PutHorizon(w *store.Writes, h Horizon) { horizons.Put(w, keyHorizon, h) }

// Period is the row of a closed period.
type Period struct {
	Statement string    `cbor:"1,keyasint"` // its text
	CloseSeq  uint64    `cbor:"2,keyasint"` // of the OpClose
	ClosedAt  int64     `cbor:"3,keyasint"` // Unix ns
	File      string    `cbor:"4,keyasint"` // path, as it was given
	FileB3    b3.Digest `cbor:"5,keyasint"` // of the file
	ContentB3 b3.Digest `cbor:"6,keyasint"` // of its lines
	Bytes     uint64    `cbor:"7,keyasint"` // of the file
	Copies    int       `cbor:"8,keyasint"` // that were read back from the archive
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
