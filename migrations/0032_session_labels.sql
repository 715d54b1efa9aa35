-- A digest of the labels of the caller that opened the session; null: of a gateway that did not know of labels.
alter table sessions add column labels_digest bigint;
