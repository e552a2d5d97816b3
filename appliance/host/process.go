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

// Limits are the resource limits of the process.
type Limits struct {
	Files     uint64 // open files, the current limit
	FilesHard uint64 // open files, the hard limit
	Locked    uint64 // bytes of memory that may be locked
	Group     Group
	Cores     int // cores that Go uses
}

// ReadLimits reads the limits. Those that it cannot read are 0 and in the error.
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

// Raise raises the limit of open files to the hard limit. It sets the garbage collector's memory
// limit to heap, unless that is 0 or GOMEMLIMIT is set. It returns the resulting limits; memory is
// 0 if it is unbounded.
func Raise(l Limits, heap int64) (files uint64, memory int64, err error) {
	files = l.Files
	if l.Files < l.FilesHard {
		if err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: l.FilesHard, Max: l.FilesHard}); err != nil {
			err = fmt.Errorf("raising the limit of open files to %d: %w", l.FilesHard, err)
		} else {
			files = l.FilesHard
		}
	}
	if os.Getenv("GOMEMLIMIT") == "" && heap > 0 {
		debug.SetMemoryLimit(heap)
	}
	if memory = debug.SetMemoryLimit(-1); memory == math.MaxInt64 {
		memory = 0
	}
	return files, memory, err
}

// NoDump excludes the memory of the process from core dumps and hides it from other processes of
// its user.
func NoDump() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	return nil
}

// ErrLockLimit is returned if memory cannot be locked permanently, because a later allocation
// beyond the limit would fail and end the process.
var ErrLockLimit = errors.New(
	"the limit of locked memory is not unlimited: set LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited",
)

// LockMemory keeps every page of the process, including later ones, out of swap from its first use.
func LockMemory() error {
	may, err := mayLock()
	if err != nil {
		return err
	}
	if !may {
		return ErrLockLimit
	}
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		return fmt.Errorf("mlockall: %w", err)
	}
	return nil
}

// mayLock reports whether locked memory is unbounded.
func mayLock() (bool, error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return false, fmt.Errorf("getrlimit: %w", err)
	}
	header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("capget: %w", err)
	}
	return l.Cur == unix.RLIM_INFINITY || data[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0, nil
}
