// Package exportdata finds the export data of compiled packages, for tests that check types.
package exportdata

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
)

// Package is a compiled package.
type Package struct {
	ImportPath string
	Name       string
	Export     string // the file with the export data
}

// List compiles packages with the go command, which runs in the folder dir, and returns them. The
// error wraps [exec.ErrNotFound] if there is no go command.
func List(dir string, packages ...string) ([]Package, error) {
	list := exec.Command("go", append([]string{"list", "-export", "-json=ImportPath,Name,Export"}, packages...)...)
	list.Dir = dir
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	var found []Package
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		err := in.Decode(&p)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		found = append(found, p)
	}
}

// Importer returns an importer of packages. It keeps what it has read, and is not safe for
// concurrent use.
func Importer(fset *token.FileSet, packages []Package) types.Importer {
	files := map[string]string{}
	for _, p := range packages {
		files[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, errors.New("package " + path + " is not among those that may be imported")
		}
		return os.Open(files[path])
	})
}
