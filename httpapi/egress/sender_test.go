package egress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// connected returns the ends of a TCP connection: a Sender and its reader.
func connected(t *testing.T, p *Pool) (*Sender, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	there, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	here, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	_ = there.SetDeadline(time.Now().Add(time.Minute))
	return NewSender(here.(*net.TCPConn), p), there
}

// numbers returns n bytes of which no eight are alike.
func numbers(n int) []byte {
	b := make([]byte, 0, n)
	for i := range n / 8 {
		b = binary.BigEndian.AppendUint64(b, uint64(i))
	}
	return b
}

// receive reads n bytes in another goroutine, and returns a function that waits for them.
func receive(t *testing.T, c net.Conn, n int) func() []byte {
	t.Helper()
	got, done := make([]byte, n), make(chan error, 1)
	go func() {
		_, err := io.ReadFull(c, got)
		done <- err
	}()
	return func() []byte {
		if err := <-done; err != nil {
			t.Error(err)
		}
		return got
	}
}

// Many answers read parts of one open file at the same time, and each gets its own.
func TestAnswersShareAFile(t *testing.T) {
	all, path := numbers(8<<20), filepath.Join(t.TempDir(), "object")
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var wg sync.WaitGroup
	for i, p := 0, NewPool(); i < 8; i++ {
		s, c := connected(t, p)
		wg.Go(func() {
			at, n := i<<19, 2<<20
			got := receive(t, c, n)
			part := io.NewSectionReader(f, 0, int64(len(all)))
			_, _ = part.Seek(int64(at), io.SeekStart)
			sent, err := s.ReadFrom(&io.LimitedReader{R: part, N: int64(n)})
			if err != nil || sent != int64(n) || !bytes.Equal(got(), all[at:at+n]) {
				t.Errorf("answer %d: %d bytes, %v", i, sent, err)
			}
			if now, _ := part.Seek(0, io.SeekCurrent); now != int64(at+n) {
				t.Errorf("answer %d: the reader is at %d, want %d", i, now, at+n)
			}
		})
	}
	wg.Wait()
	if at, _ := f.Seek(0, io.SeekCurrent); at != 0 {
		t.Errorf("the offset of the file is %d", at)
	}
}

// What is not a file, or is none that the kernel sends, arrives too. A file that ends early does not wait.
func TestReadFromAnything(t *testing.T) {
	all := numbers(1 << 20)
	path := filepath.Join(t.TempDir(), "object")
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(path string) *os.File {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = write.Write(all[:1<<10])
	_ = write.Close()
	version, _ := os.ReadFile("/proc/version")
	for name, tt := range map[string]struct {
		r    io.Reader
		want []byte
	}{
		"memory":                       {bytes.NewReader(all), all},
		"section of memory":            {io.NewSectionReader(bytes.NewReader(all), 8, 80), all[8:88]},
		"file":                         {open(path), all},
		"limited file":                 {io.LimitReader(open(path), 80), all[:80]},
		"section of a file":            {io.NewSectionReader(open(path), 8, 80), all[8:88]},
		"section beyond the end":       {io.NewSectionReader(open(path), 1<<20-80, 1<<20), all[1<<20-80:]},
		"limited section":              {io.LimitReader(io.NewSectionReader(open(path), 8, 1<<19), 80), all[8:88]},
		"section of another section":   {io.NewSectionReader(io.NewSectionReader(open(path), 8, 800), 8, 80), all[16:96]},
		"pipe":                         {read, all[:1<<10]},
		"file of the kernel's own":     {open("/proc/version"), version},
		"nothing of a file":            {io.LimitReader(open(path), 0), nil},
		"several readers, one of them": {io.MultiReader(open(path), open(path)), append(all, all...)},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := connected(t, NewPool())
			got := receive(t, c, len(tt.want))
			n, err := s.ReadFrom(tt.r)
			if err != nil || n != int64(len(tt.want)) || !bytes.Equal(got(), tt.want) {
				t.Errorf("%d bytes of %d, %v", n, len(tt.want), err)
			}
		})
	}
}

// A write to a client that does not read fails at the deadline of the socket, or after a window
// although an earlier deadline has passed, and says how much was sent.
func TestWriteFailsAtItsDeadline(t *testing.T) {
	for _, window := range []time.Duration{0, 50 * time.Millisecond} {
		s, _ := connected(t, NewPool())
		s.SetWindow(window)
		large := make([]byte, 64<<20)
		began := time.Now()
		if window == 0 {
			_ = s.socket.SetWriteDeadline(began.Add(50 * time.Millisecond))
		} else {
			_ = s.socket.SetWriteDeadline(time.Unix(1, 0))
		}
		n, err := s.WriteBoth(numbers(8), large)
		if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took < 50*time.Millisecond {
			t.Errorf("window %s: %v after %s", window, err, took)
		}
		if window != 0 && n < 8 || n >= 64<<20 { // the deadline may pass before the first byte
			t.Errorf("window %s: %d bytes were sent", window, n)
		}
	}
}

// sealer stands for a TLS connection: it writes records with ascending numbers, under its lock.
type sealer struct {
	mu   sync.Mutex
	next uint64
	to   *Records
}

func (s *sealer) Write(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for err == nil && n < len(b) {
		size := min(len(b)-n, 1200)
		record := binary.BigEndian.AppendUint64(nil, s.next)
		record = append(binary.BigEndian.AppendUint64(record, uint64(size)), b[n:n+size]...)
		s.next++
		n += size
		_, err = s.to.WriteRecord(record)
	}
	return n, err
}

// Records arrive in the order in which TLS has made them, also those that it writes by itself while
// the records of an answer are gathered or written.
func TestRecordsKeepTheirOrder(t *testing.T) {
	s, c := connected(t, NewPool())
	r := &Records{Sender: s}
	tls := &sealer{to: r}
	r.TLS = tls
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				_ = s.socket.Close()
				return
			default:
				_, _ = tls.Write(make([]byte, 1))
			}
		}
	})
	wg.Go(func() {
		defer close(stop)
		for i := range 100 {
			if n, err := r.WriteBoth(make([]byte, i), make([]byte, i<<10)); err != nil || n != int64(i+i<<10) {
				t.Errorf("answer %d: %d bytes, %v", i, n, err)
			}
		}
	})
	for want := uint64(0); ; want++ {
		var head [16]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			if want < 100 {
				t.Errorf("%v after %d records", err, want)
			}
			break
		}
		if got := binary.BigEndian.Uint64(head[:]); got != want {
			t.Fatalf("record %d arrived instead of %d", got, want)
		}
		if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint64(head[8:]))); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

// After an error no further record is written: the client would read a part of one.
func TestNoRecordAfterAnError(t *testing.T) {
	s, c := connected(t, NewPool())
	r := &Records{Sender: s}
	r.TLS = &sealer{to: r}
	_ = s.socket.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := r.WriteBoth(nil, make([]byte, 64<<20)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(n, err)
	}
	_ = s.socket.SetWriteDeadline(time.Time{})
	if _, err := r.WriteRecord([]byte("alert")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	_ = s.socket.Close()
	got, _ := io.ReadAll(c)
	if bytes.HasSuffix(got, []byte("alert")) {
		t.Error("a record was written after an error")
	}
}

// A file is sent as records, too.
func TestRecordsOfAFile(t *testing.T) {
	s, c := connected(t, NewPool())
	r := &Records{Sender: s}
	r.TLS = &sealer{to: r}
	f, err := os.Open("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := r.ReadFrom(io.LimitReader(f, 100)); err != nil {
		t.Fatal(err)
	}
	var record [16 + 100]byte
	if _, err := io.ReadFull(c, record[:]); err != nil || binary.BigEndian.Uint64(record[8:]) != 100 {
		t.Errorf("%q, %v", record, err)
	}
}
