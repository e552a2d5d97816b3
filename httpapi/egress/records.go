package egress

import (
	"io"
	"sync"
)

// recordBytes is the largest number of bytes of records that are gathered. It has room for the
// records of 64 KiB, which are small at the beginning of a connection.
const recordBytes = 68 << 10

// Records writes to a TLS connection over a Sender. It gathers the records of each write, which
// crypto/tls writes one by one.
type Records struct {
	*Sender
	TLS io.Writer // the connection, which writes its records with WriteRecord

	mu      sync.Mutex // a leaf
	gathers bool       // guarded by mu
	held    *[]byte    // the gathered records, or nil; guarded by mu
	err     error      // of a write of gathered records; guarded by mu
}

// WriteBoth writes two slices, of which the first may be empty. n is the length of both, or 0 after
// an error.
func (r *Records) WriteBoth(first, second []byte) (n int64, err error) {
	r.gather()
	for _, b := range [2][]byte{first, second} {
		if err == nil && len(b) > 0 {
			_, err = r.TLS.Write(b)
		}
	}
	if bad := r.flush(); err == nil {
		err = bad
	}
	if err != nil {
		return 0, err
	}
	return int64(len(first) + len(second)), nil
}

// ReadFrom writes what src returns.
func (r *Records) ReadFrom(src io.Reader) (int64, error) { return io.Copy(writerOf{r}, src) }

// WriteRecord is called by the TLS connection with each record, under its lock for writing.
func (r *Records) WriteRecord(b []byte) (n int, err error) {
	kept, full, err := r.keep(b)
	if full {
		err = r.flush()
		r.gather()
		if err == nil {
			kept, _, err = r.keep(b)
		}
	}
	switch {
	case err != nil:
		return 0, err
	case kept:
		return len(b), nil
	}
	return writerOf{r.Sender}.Write(b) // of a handshake, or an alert
}

// gather causes the records of a write to be gathered.
func (r *Records) gather() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gathers = true
}

// keep adds a record to those that are gathered. It reports whether it has, and whether they are
// too many.
func (r *Records) keep(b []byte) (kept, full bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || !r.gathers {
		return false, false, r.err
	}
	if r.held == nil {
		r.held = r.pool.records.Get().(*[]byte)
	}
	if len(*r.held)+len(b) > recordBytes {
		return false, true, nil
	}
	*r.held = append(*r.held, b...)
	return true, false, nil
}

// flush writes the gathered records. It takes them under the write lock of the descriptor, so that
// a record which is not gathered, such as the answer to an update of the keys, comes after them.
func (r *Records) flush() error {
	t := r.pool.transfers.Get().(*transfer)
	t.from = r
	_, err := r.do(t)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = err
	}
	return err
}

// take returns the gathered records, or nil, and ends their gathering.
func (r *Records) take() *[]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.held
	r.gathers, r.held = false, nil
	return held
}
