package pebblestore

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// engineFS is the file system of an engine. The engine fails if a write, a sync or a new file of
// its directory fails. From then on engineFS drops all changes and reports success. There are two
// reasons: Pebble panics with a mutex unlocked, which ends the process, if it cannot begin a WAL,
// and a failed engine must not change the directory while the next one has it open. No call is
// answered with a change that was dropped, because engine.failed was closed before.
//
// Other users cannot read the files. The directory is not locked here: see Store.acquire.
type engineFS struct {
	vfs.FS
	engine *engine
}

// change makes a change of the directory, and fails the engine if that fails.
func (f engineFS) change(do func() error) {
	if f.engine.failedWith() != nil {
		return
	}
	f.engine.fail(do())
}

// owns reports whether a path is a file of the engine, and not of a backup.
func (f engineFS) owns(name string) bool {
	return f.PathDir(name) == f.PathDir(f.PathJoin(f.engine.store.dir, "x"))
}

// create returns the file that open creates.
func (f engineFS) create(name string, open func() (vfs.File, error)) (file vfs.File, err error) {
	private := func() (vfs.File, error) {
		file, err := open()
		if err == nil && f.FS == vfs.Default {
			err = os.Chmod(name, 0o600)
		}
		return file, err
	}
	if !f.owns(name) {
		return private()
	}
	f.change(func() error { file, err = private(); return err })
	if file == nil || err != nil {
		file, err = vfs.NewMem().Create("dropped", vfs.WriteCategoryUnspecified)
	}
	return engineFile{file, f}, err
}

func (f engineFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.create(name, func() (vfs.File, error) { return f.FS.Create(name, category) })
}

func (f engineFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return f.create(to, func() (vfs.File, error) { return f.FS.ReuseForWrite(from, to, category) })
}

func (f engineFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil || !f.owns(f.PathJoin(name, "x")) {
		return dir, err
	}
	return engineFile{dir, f}, nil
}

func (f engineFS) Rename(from, to string) error {
	if !f.owns(to) {
		return f.FS.Rename(from, to)
	}
	f.change(func() error { return f.FS.Rename(from, to) })
	return nil
}

// Remove does not fail the engine: Pebble logs the error, and the file only takes space.
func (f engineFS) Remove(name string) error {
	if f.owns(name) && f.engine.failedWith() != nil {
		return nil
	}
	return f.FS.Remove(name)
}

func (f engineFS) MkdirAll(dir string, perm os.FileMode) error { return f.FS.MkdirAll(dir, perm&0o700) }

func (engineFS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }
func (f engineFS) Unwrap() vfs.FS               { return f.FS }
func (f engineFS) Link(from, to string) error   { return linkOrCopy(f.FS, from, to) }

// linkOrCopy copies a file if it cannot be linked. A file system without links may report that as a
// lack of permission, after which vfs.LinkOrCopy does not copy.
func linkOrCopy(disk vfs.FS, from, to string) error {
	err := vfs.LinkOrCopy(disk, from, to)
	if errors.Is(err, fs.ErrPermission) {
		err = vfs.Copy(disk, from, to)
	}
	return err
}

// engineFile is a file or the directory of an engine. Pebble never calls WriteAt.
type engineFile struct {
	vfs.File
	fs engineFS
}

func (f engineFile) Write(b []byte) (int, error) {
	f.fs.change(func() error { _, err := f.File.Write(b); return err })
	return len(b), nil
}

func (f engineFile) Sync() error     { f.fs.change(f.File.Sync); return nil }
func (f engineFile) SyncData() error { f.fs.change(f.File.SyncData); return nil }

func (f engineFile) SyncTo(length int64) (full bool, err error) {
	f.fs.change(func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, nil
}

func (f engineFile) Close() error {
	f.fs.engine.fail(f.File.Close())
	return nil
}
