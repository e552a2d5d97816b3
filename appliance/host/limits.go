package host

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Limits is what the process may use.
type Limits struct {
	Files     uint64 // open files, as it is
	FilesHard uint64 // and as far as it may be raised
	Locked    uint64 // bytes of memory that may be locked
	Group     Group
	Cores     int // that Go runs on
}

// ReadLimits reads all it can; what it cannot is 0 and in the error.
func ReadLimits() (Limits, error) {
	l := Limits{Cores: runtime.GOMAXPROCS(0)}
	var files, locked unix.Rlimit
	fileErr := unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	l.Files, l.FilesHard = files.Cur, files.Max
	lockErr := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &locked)
	l.Locked = locked.Cur
	group, groupErr := here().group()
	l.Group = group
	return l, errors.Join(fileErr, lockErr, groupErr)
}

// memoryPart is the part of the control group's memory that Go's heap aims to stay below: the rest is for stacks, the page cache of the
// database and what is measured late.
const memoryPart = 0.9

// Raise lifts the limit of open files to the hard one, and tells the garbage collector of the memory there is unless GOMEMLIMIT did.
// It returns what holds now; memory is 0 where nothing bounds it.
func Raise(l Limits) (files uint64, memory int64, err error) {
	files = l.Files
	if l.Files < l.FilesHard {
		if err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: l.FilesHard, Max: l.FilesHard}); err != nil {
			err = fmt.Errorf("raising the limit of open files to %d: %w", l.FilesHard, err)
		} else {
			files = l.FilesHard
		}
	}
	if os.Getenv("GOMEMLIMIT") == "" && l.Group.Memory > 0 {
		debug.SetMemoryLimit(int64(memoryPart * float64(l.Group.Memory)))
	}
	if memory = debug.SetMemoryLimit(-1); memory == math.MaxInt64 {
		memory = 0
	}
	return files, memory, err
}
