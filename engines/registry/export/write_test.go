package export

import (
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"ronbox/engines/registry/rverify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errCut = errors.New("by the test")

// cutSource is a log whose last version cannot be read.
type cutSource struct{ Source }

const cutSize = 300 // more than one bundle

func (cutSource) Latest() []byte {
	return fmt.Appendf(nil, "a.example/log\n%d\n%s\n\n", cutSize, base64.StdEncoding.EncodeToString(make([]byte, 32)))
}

func (cutSource) Horizon() (*rverify.Horizon, error) { return nil, nil }

func (cutSource) Epochs() iter.Seq2[uint64, []byte] { return func(func(uint64, []byte) bool) {} }

func (cutSource) Payload(uint64) ([]byte, error) { return []byte("payload"), nil }

func (cutSource) Entry(v uint64) ([]byte, error) {
	if v == cutSize {
		return nil, errCut
	}
	return []byte("entry"), nil
}

// An export that fails removes its files and no other one. An export into a directory with files is
// refused, with what to do.
func TestCutExport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	alien := filepath.Join(dir, "payload", "alien")
	var done uint64
	progress := func(n, _ uint64) {
		done = n
		if err := os.WriteFile(alien, nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	if _, err := Write(t.Context(), dir+"/", cutSource{}, progress); !errors.Is(err, errCut) || done == 0 {
		t.Fatalf("%d versions, err = %v", done, err)
	}
	var left []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		left = append(left, path)
		return err
	})
	if err != nil || len(left) != 3 || left[2] != alien {
		t.Errorf("left %q, err = %v, want only %s", left, err, alien)
	}
	_, err = Write(t.Context(), dir, cutSource{}, progress)
	if err == nil || !strings.Contains(err.Error(), "name another directory, or remove this one") {
		t.Errorf("err = %v", err)
	}
}
