"""Sessions for others to read: as any wire's messages, or as Markdown for people."""
