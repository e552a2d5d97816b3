package upkeep

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/cmd/ronbox/server/config"
	"ronbox/store"
)

// CheckPrefix is the name prefix of the folder of a copy that is being checked.
const CheckPrefix = "ronbox-check-"

// tempAge is the age from which a temporary file of a verb counts as left by a killed verb.
const tempAge = time.Hour

// tempName matches temporary files of verbs and of the doctor.
var tempName = regexp.MustCompile(`^\.ronbox-(sync-)?[0-9]+$`)

// Sweep removes leftovers of killed processes in the directory of cfg: copies for a check,
// compaction, restore or snapshot, and temporary files of verbs, those of keys in the folders of
// keys too. Call it after the file is locked.
func Sweep(cfg *config.Config, st *store.Store, log hclog.Logger) {
	var removed []string
	var err error
	keys := filepath.Dir(config.LogKeyName)
	for _, dir := range []string{cfg.Node.DataDir, cfg.Path(keys), cfg.Path(config.RewarderName)} {
		swept, failed := sweepDir(dir)
		removed, err = append(removed, swept...), errors.Join(err, failed)
	}
	beside, failed := store.SweepBeside(st.Path())
	_, swept := st.Sweep(cfg.SnapshotDir()) // it logs what it removes
	for _, path := range slices.Concat(removed, beside) {
		log.Info("remains_removed", "file", path, "reason", "left by a killed process")
	}
	if err = errors.Join(err, failed, swept); err != nil {
		log.Warn("leftovers of killed processes were not all removed", "reason", err.Error(), "next",
			"remove the named files if no process writes them")
	}
}

// sweepDir removes the leftovers in a directory, which need not exist.
func sweepDir(dir string) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		info, gone := e.Info()
		if gone != nil || !(e.IsDir() && strings.HasPrefix(e.Name(), CheckPrefix)) &&
			!(info.Mode().IsRegular() && tempName.MatchString(e.Name()) && time.Since(info.ModTime()) > tempAge) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if gone = os.RemoveAll(path); gone == nil {
			removed = append(removed, path)
		}
		err = errors.Join(err, gone)
	}
	return removed, err
}
