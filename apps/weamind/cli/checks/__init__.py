"""What the doctor looks at: each module asks one part, and judges the answers."""
