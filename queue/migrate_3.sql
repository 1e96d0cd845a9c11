-- From schema 3 to 4. Views and triggers are dropped before and made anew after.
-- What is hidden may be on its way in as well.
DROP INDEX batch_pruned;
ALTER TABLE batch RENAME COLUMN is_pruned TO is_hidden;
CREATE INDEX batch_hidden ON batch (id) WHERE is_hidden = 1;
