package httpapi

import (
	"strconv"

	"ronbox/engines/wallet"
)

// maxBatchOps is how many operations a batch may hold, whatever the wallet would take: as many as one ledger batch is made for.
const maxBatchOps = 4096

// BatchSizeError says that a batch holds too many operations.
type BatchSizeError struct{ Max int }

func (e *BatchSizeError) Error() string {
	return "ops: a batch holds at most " + strconv.Itoa(e.Max) + " operations; send the rest as another one, under a key of its own"
}

// batch is a body of POST /v1/batch.
type batch struct {
	atomic bool
	ops    []wallet.Request
}

// members of a batch.
const (
	batchMode members = 1 << iota
	batchOps
)

// readBatch reads the whole of a batch.
func readBatch(in bodyReader) (b batch, err error) {
	var seen members
	err = in.object(func(name []byte) error {
		m := batchMember(name)
		switch {
		case m == 0:
			return in.fail("", wantKnown)
		case seen&m != 0:
			return in.fail("", wantOnce)
		}
		seen |= m
		if m == batchMode {
			return b.readMode(in)
		}
		return b.readOps(in)
	})
	if err == nil {
		err = in.end()
	}
	switch {
	case err != nil:
	case seen&batchMode == 0:
		err = in.fail("mode", wantThere)
	case seen&batchOps == 0:
		err = in.fail("ops", wantThere)
	case len(b.ops) == 0:
		err = in.fail("ops", "must hold at least one operation")
	}
	return b, err
}

func batchMember(name []byte) members {
	switch string(name) {
	case "mode":
		return batchMode
	case "ops":
		return batchOps
	}
	return 0
}

func (b *batch) readMode(in bodyReader) error {
	v, err := in.text()
	if err != nil {
		return err
	}
	b.atomic = string(v) == "atomic"
	if !b.atomic && string(v) != "independent" {
		return in.fail("", "must be atomic or independent")
	}
	return nil
}

func (b *batch) readOps(in bodyReader) error {
	one := orderReader{in: in}
	return in.list(func(i int) error {
		if i == maxBatchOps {
			return &BatchSizeError{maxBatchOps}
		}
		req, err := one.order(0)
		if err != nil {
			return err
		}
		b.ops = append(b.ops, req)
		return nil
	})
}
