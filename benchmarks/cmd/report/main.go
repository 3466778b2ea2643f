// Command report makes tables and plots of what cmd/compare has measured:
//
//	go run ./benchmarks/cmd/report -o docs/benchmarks compare.txt
//
// It writes README.md and one SVG for each plot. The same figures give the same files.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/timingwheel-go/timingwheel/benchmarks/internal/command"
	"github.com/timingwheel-go/timingwheel/benchmarks/internal/results"
	"github.com/urfave/cli/v3"
)

const (
	exitDone = iota
	exitFailed
	exitUsage
)

func main() { os.Exit(report(os.Args, os.Stdout, os.Stderr)) }

// report is the program without its process: it returns the exit code.
func report(args []string, stdout, stderr io.Writer) int {
	input, directory := "", "docs/benchmarks"
	flags := []cli.Flag{
		&cli.StringFlag{Name: "o", Usage: "write README.md and the plots to this `folder`", Value: directory, Destination: &directory},
	}
	const usage = "make tables and plots of what cmd/compare has measured"
	text := "go run ./benchmarks/cmd/report [-o folder] compare.txt"
	cmd := command.New("report", usage, text, flags, stdout, func(cmd *cli.Command) error {
		if n := cmd.Args().Len(); n != 1 {
			return fmt.Errorf("needs one file of figures, not %d", n)
		}
		if directory == "" {
			return errors.New("-o must name a folder")
		}
		input = cmd.Args().First()
		return nil
	})
	if err := cmd.Run(context.Background(), args); err != nil {
		fmt.Fprintf(stderr, "report: %v\nSee report -help.\n", err)
		return exitUsage
	}
	if input == "" { // the help was asked for and printed
		return exitDone
	}
	if err := write(input, directory); err != nil {
		fmt.Fprintf(stderr, "report: %v\n", err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "wrote %s\n", filepath.Join(directory, "README.md"))
	return exitDone
}

// write makes the report of the figures in a file.
func write(input, directory string) error {
	text, err := os.ReadFile(input)
	if err != nil {
		return err
	}
	m, err := results.Read(bytes.NewReader(text), input)
	if err != nil {
		return err
	}
	outcomes, err := results.ReadOutcomes(bytes.NewReader(text))
	if err != nil {
		return err
	}
	f := newFigures(m, outcomes)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	var drawn []chart
	for _, c := range charts(f) {
		if len(c.lines) == 0 {
			continue
		}
		svg, err := c.draw()
		if err != nil {
			return fmt.Errorf("%s: %w", c.file, err)
		}
		if err := os.WriteFile(filepath.Join(directory, c.file), svg, 0o644); err != nil {
			return err
		}
		drawn = append(drawn, c)
	}
	raw := ""
	if name, err := filepath.Rel(directory, input); err == nil && filepath.Base(name) == name {
		raw = name
	}
	return os.WriteFile(filepath.Join(directory, "README.md"), []byte(markdown(f, drawn, raw)), 0o644)
}
