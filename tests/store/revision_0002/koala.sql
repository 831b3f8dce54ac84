BEGIN TRANSACTION;
CREATE TABLE components (
	token TEXT NOT NULL, 
	job INTEGER NOT NULL, 
	run INTEGER NOT NULL, 
	part INTEGER NOT NULL, 
	parts INTEGER NOT NULL, 
	site TEXT NOT NULL, 
	processors INTEGER NOT NULL, 
	claimed_at DOUBLE NOT NULL, 
	ready_at DOUBLE, 
	released_at DOUBLE, 
	ended_at DOUBLE, 
	outcome TEXT, 
	exit_code INTEGER, 
	reason TEXT NOT NULL, 
	pruned BOOLEAN DEFAULT 0 NOT NULL, 
	CONSTRAINT pk_components PRIMARY KEY (token)
);
INSERT INTO "components" VALUES('1.1',1,1,0,2,'a',1,1.79484604049534153934e+09,1.79484604060848951341e+09,1.79484604060862278944e+09,1.79484604078276419646e+09,'done',0,'',0);
INSERT INTO "components" VALUES('1.2',1,1,1,2,'b',1,1.79484604049534153934e+09,1.79484604060862278944e+09,1.79484604060862278944e+09,1.79484604078608131405e+09,'done',0,'',0);
INSERT INTO "components" VALUES('2.1',2,1,0,1,'a',1,1.79484604079101133346e+09,1.79484604085097241405e+09,1.79484604085097241405e+09,1.79484604100734257696e+09,'failed',3,'exit code 3',0);
INSERT INTO "components" VALUES('3.1',3,1,0,2,'b',1,1.7948460410808374882e+09,1794846041.20568,1.79484604125901508328e+09,1.79484604147652959823e+09,'done',0,'',0);
INSERT INTO "components" VALUES('3.2',3,1,1,2,'b',1,1.7948460410808374882e+09,1.79484604125901508328e+09,1.79484604125901508328e+09,1.79484604147934770582e+09,'done',0,'',0);
INSERT INTO "components" VALUES('4.1',4,1,0,1,'a',2,1.79484604170464468004e+09,1.79484604183676099775e+09,1.79484604183676099775e+09,NULL,NULL,NULL,'',0);
INSERT INTO "components" VALUES('5.1',5,1,0,2,'b',1,1.79484604185219883917e+09,1.79484604195744252208e+09,1.79484604200906753537e+09,NULL,NULL,NULL,'',0);
INSERT INTO "components" VALUES('5.2',5,1,1,2,'b',1,1.79484604185219883917e+09,1.79484604200906753537e+09,1.79484604200906753537e+09,NULL,NULL,NULL,'',0);
CREATE TABLE files (
	"key" TEXT NOT NULL, 
	head TEXT NOT NULL, 
	name TEXT NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	checksum TEXT NOT NULL, 
	replicas TEXT NOT NULL, 
	CONSTRAINT pk_files PRIMARY KEY ("key")
);
INSERT INTO "files" VALUES('3041fc97d21e3e1acb69a072a2df4cb7657c6a77b6166d4d1c5611db05ae0963','data/é','data/é',2000,'5c0e0ea421571c300b5df6aec0a118b5c3dc02e0683a546341d5efc689df2f58','[{"site":"a","size_bytes":2000,"checksum":"5c0e0ea421571c300b5df6aec0a118b5c3dc02e0683a546341d5efc689df2f58"}]');
CREATE TABLE jobs (
	id INTEGER NOT NULL, 
	owner TEXT NOT NULL, 
	name TEXT NOT NULL, 
	state TEXT NOT NULL, 
	priority TEXT NOT NULL, 
	job_type TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	policy TEXT NOT NULL, 
	processors INTEGER NOT NULL, 
	submitted_at DOUBLE NOT NULL, 
	since DOUBLE NOT NULL, 
	started_at DOUBLE, 
	ended_at DOUBLE, 
	reason TEXT NOT NULL, 
	exit_code INTEGER, 
	places TEXT NOT NULL, 
	placement_tries INTEGER DEFAULT '0' NOT NULL, 
	claiming_tries INTEGER DEFAULT '0' NOT NULL, 
	runs INTEGER DEFAULT '0' NOT NULL, 
	failures INTEGER DEFAULT '0' NOT NULL, 
	preemptions INTEGER DEFAULT '0' NOT NULL, 
	client_token TEXT, 
	explanation TEXT, 
	request_key TEXT, 
	CONSTRAINT pk_jobs PRIMARY KEY (id), 
	CONSTRAINT fk_jobs_request_key FOREIGN KEY(request_key) REFERENCES requests ("key")
);
INSERT INTO "jobs" VALUES(1,'anna','done é漢😀 back\\slash','done','low','plain','non-fixed','WF',2,1.79484604049534153934e+09,1.79484604078608131405e+09,1.79484604060862278944e+09,1.79484604078608131405e+09,'',0,'[["a",1],["b",1]]',1,1,1,0,0,NULL,'{"placement_tries":1,"claiming_tries":1,"runs":1,"failures":0,"preemptions":0,"job":1,"state":"done","meaning":"every component returned success","since":1794846040.7860813,"waiting_since":null,"place_in_line":null,"refusal":null,"places":[["a",1],["b",1]],"story":[{"at":1794846040.4953415,"text":"submitted: non-fixed request for 2 processors"},{"at":1794846040.4953415,"text":"placed: 1 on a, 1 on b"},{"at":1794846040.4953415,"text":"all components are claimed; it waits at the barrier"},{"at":1794846040.6086228,"text":"the barrier opened: all components started together"},{"at":1794846040.7860813,"text":"done"}]}','17f5cfc78309423a12dad2f8e8f380aa5ff1423ddb8ac5187e51fbfbbb41080d');
INSERT INTO "jobs" VALUES(2,'anna','failed','failed','low','plain','non-fixed','WF',1,1.79484604079101133346e+09,1.79484604100734257696e+09,1.79484604085097241405e+09,1.79484604100734257696e+09,'component 0 failed on a with exit code 3, and it may not be restarted',3,'[["a",1]]',1,1,1,1,0,NULL,'{"placement_tries":1,"claiming_tries":1,"runs":1,"failures":1,"preemptions":0,"job":2,"state":"failed","meaning":"component 0 failed on a with exit code 3, and it may not be restarted","since":1794846041.0073426,"waiting_since":null,"place_in_line":null,"refusal":null,"places":[["a",1]],"story":[{"at":1794846040.7910113,"text":"submitted: non-fixed request for 1 processor"},{"at":1794846040.7910113,"text":"placed: 1 on a"},{"at":1794846040.7910113,"text":"all components are claimed; it waits at the barrier"},{"at":1794846040.8509724,"text":"the barrier opened: all components started together"},{"at":1794846041.0073426,"text":"component 0 failed on a: the application ended with exit code 3"},{"at":1794846041.0073426,"text":"failed: component 0 failed on a with exit code 3, and it may not be restarted"}]}','7305c91719c05cc1bf1f97e6c8dce68dcaa3b3b766ab14881ef6ba7782a8201d');
INSERT INTO "jobs" VALUES(3,'anna','with a file','done','low','plain','fixed','WF',2,1.79484604103797411919e+09,1.79484604147934770582e+09,1.79484604125901508328e+09,1.79484604147934770582e+09,'',0,'[["b",1],["b",1]]',1,1,1,0,0,NULL,'{"placement_tries":1,"claiming_tries":1,"runs":1,"failures":0,"preemptions":0,"job":3,"state":"done","meaning":"every component returned success","since":1794846041.4793477,"waiting_since":null,"place_in_line":null,"refusal":null,"places":[["b",1],["b",1]],"story":[{"at":1794846041.037974,"text":"submitted: fixed request for 2 processors"},{"at":1794846041.037974,"text":"placed: 1 on b, 1 on b; its files take about 0 s"},{"at":1794846041.0808375,"text":"all components are claimed; it waits at the barrier"},{"at":1794846041.1133122,"text":"file data/\u00e9 arrived on b"},{"at":1794846041.259015,"text":"the barrier opened: all components started together"},{"at":1794846041.4793477,"text":"done"}]}','f1c7dc712522f1c0cebc1a63493d62ba7e8aa577cff9c093c572600b59a965e9');
INSERT INTO "jobs" VALUES(4,'anna','running','running','low','plain','fixed','WF',2,1.79484604170464468004e+09,1.79484604183676099775e+09,1.79484604183676099775e+09,NULL,'',NULL,'[["a",2]]',1,1,1,0,0,NULL,NULL,'d4752081bbc7d6eec84ee9b227182cac40051f19102c0b1c4890b86300551c1d');
INSERT INTO "jobs" VALUES(5,'anna','two components','running','low','plain','fixed','WF',2,1.79484604185219883917e+09,1.79484604200906753537e+09,1.79484604200906753537e+09,NULL,'',NULL,'[["b",1],["b",1]]',1,1,1,0,0,'once',NULL,'7e7d7dfc60f689abac7b36889e35ea80c1bd81d03b9b6d4963c1f817ef82eaf9');
INSERT INTO "jobs" VALUES(6,'anna','waiting','waiting','low','plain','non-fixed','WF',2,1.79484604202703118321e+09,1.79484604202703118321e+09,NULL,NULL,'',NULL,'[]',2,0,0,0,0,NULL,NULL,'e1a18a8a4f276a66d294345f841643a9c2631e7018c5420a2b1149692cc8983e');
INSERT INTO "jobs" VALUES(7,'anna','cancelled','cancelled','low','plain','non-fixed','WF',2,1.79484604202955770491e+09,1.79484604205932712561e+09,NULL,1.79484604205932712561e+09,'cancelled',NULL,'[]',1,0,0,0,0,NULL,'{"placement_tries":1,"claiming_tries":0,"runs":0,"failures":0,"preemptions":0,"job":7,"state":"cancelled","meaning":"its user or an operator cancelled it","since":1794846042.0593271,"waiting_since":null,"place_in_line":null,"refusal":null,"places":[],"story":[{"at":1794846042.0295577,"text":"submitted: non-fixed request for 2 processors"},{"at":1794846042.0295577,"text":"no place found (idle: a 0, b 0); it waits in its placement queue"},{"at":1794846042.0593271,"text":"cancelled: cancelled"}]}','a4d3b4e5990458267b5ce726ef6ebd4971ad8cbf9765e47f50f8c5b22511e0b0');
INSERT INTO "jobs" VALUES(8,'anna','after the snapshot','waiting','high','plain','non-fixed','WF',2,1.79484604204387855532e+09,1.79484604204387855532e+09,NULL,NULL,'',NULL,'[]',2,0,0,0,0,NULL,NULL,'81a6d405dddc458b18be2908a4bfd5fc761bf5c4a3e739e9d29e7ecbee77072c');
CREATE TABLE journal (
	seq INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	kind TEXT NOT NULL, 
	what TEXT NOT NULL, 
	job INTEGER, 
	site TEXT, 
	owner TEXT, 
	body TEXT NOT NULL, 
	CONSTRAINT pk_journal PRIMARY KEY (seq)
);
INSERT INTO "journal" VALUES(1,1.79484604048077273368e+09,'event','Tick',NULL,NULL,NULL,'{"event":"Tick","at":1794846040.4807727}');
INSERT INTO "journal" VALUES(2,1.79484604048082184791e+09,'event','FileChanged',NULL,NULL,NULL,'{"event":"FileChanged","at":1794846040.4808218,"file":"data/é","size_bytes":2000,"replicas":["a"]}');
INSERT INTO "journal" VALUES(3,1.79484604049534153934e+09,'event','JobSubmitted',1,NULL,'anna','{"event":"JobSubmitted","at":1794846040.4953415,"job":1,"request":{"components":[{"processors":1,"application":{"script":"#!/bin/sh\n# a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; \nexit 0\n"}},{"processors":1,"application":{"script":"#!/bin/sh\n# a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; \nexit 0\n"}}],"name":"done é漢😀 back\\slash"}}');
INSERT INTO "journal" VALUES(4,1.79484604049534153934e+09,'command','JobPlaced',1,NULL,'anna','{"command":"JobPlaced","job":1,"places":[["a",1],["b",1]]}');
INSERT INTO "journal" VALUES(5,1.79484604049534153934e+09,'command','StartComponent',1,'a','anna','{"command":"StartComponent","job":1,"token":"1.1","site":"a","processors":1,"component":0,"part":0,"parts":2,"begin_at":1794846040.4953415,"barrier_timeout_s":620.0}');
INSERT INTO "journal" VALUES(6,1.79484604049534153934e+09,'command','StartComponent',1,'b','anna','{"command":"StartComponent","job":1,"token":"1.2","site":"b","processors":1,"component":1,"part":1,"parts":2,"begin_at":1794846040.4953415,"barrier_timeout_s":620.0}');
INSERT INTO "journal" VALUES(7,1.7948460405353069305e+09,'event','ComponentAccepted',1,'a','anna','{"event":"ComponentAccepted","at":1794846040.535307,"token":"1.1"}');
INSERT INTO "journal" VALUES(8,1.79484604054240369803e+09,'event','ComponentAccepted',1,'b','anna','{"event":"ComponentAccepted","at":1794846040.5424037,"token":"1.2"}');
INSERT INTO "journal" VALUES(9,1.79484604060848951341e+09,'event','ComponentReady',1,'a','anna','{"event":"ComponentReady","at":1794846040.6084895,"token":"1.1"}');
INSERT INTO "journal" VALUES(10,1.79484604060862278944e+09,'event','ComponentReady',1,'b','anna','{"event":"ComponentReady","at":1794846040.6086228,"token":"1.2"}');
INSERT INTO "journal" VALUES(11,1.79484604060862278944e+09,'command','ReleaseBarrier',1,NULL,'anna','{"command":"ReleaseBarrier","job":1,"tokens":["1.1","1.2"]}');
INSERT INTO "journal" VALUES(12,1.79484604078276419646e+09,'event','ComponentEnded',1,'a','anna','{"event":"ComponentEnded","at":1794846040.7827642,"token":"1.1","outcome":"done","exit_code":0}');
INSERT INTO "journal" VALUES(13,1.79484604078608131405e+09,'event','ComponentEnded',1,'b','anna','{"event":"ComponentEnded","at":1794846040.7860813,"token":"1.2","outcome":"done","exit_code":0}');
INSERT INTO "journal" VALUES(14,1.79484604078608131405e+09,'command','JobEnded',1,NULL,'anna','{"command":"JobEnded","job":1,"outcome":"done","reason":"","submitted_at":1794846040.4953415,"placed_at":1794846040.4953415,"started_at":1794846040.6086228,"ended_at":1794846040.7860813,"first_start_estimate":1794846040.4953415,"last_start_estimate":1794846040.4953415,"places":[["a",1],["b",1]],"placement_tries":1,"claiming_tries":1,"runs":1,"failures":0,"preemptions":0}');
INSERT INTO "journal" VALUES(15,1.79484604079101133346e+09,'event','JobSubmitted',2,NULL,'anna','{"event":"JobSubmitted","at":1794846040.7910113,"job":2,"request":{"components":[{"processors":1,"application":{"script":"exit 3"}}],"name":"failed","restarts_max":0}}');
INSERT INTO "journal" VALUES(16,1.79484604079101133346e+09,'command','JobPlaced',2,NULL,'anna','{"command":"JobPlaced","job":2,"places":[["a",1]]}');
INSERT INTO "journal" VALUES(17,1.79484604079101133346e+09,'command','StartComponent',2,'a','anna','{"command":"StartComponent","job":2,"token":"2.1","site":"a","processors":1,"component":0,"part":0,"parts":1,"begin_at":1794846040.7910113,"barrier_timeout_s":620.0}');
INSERT INTO "journal" VALUES(18,1.7948460407965464592e+09,'event','ComponentAccepted',2,'a','anna','{"event":"ComponentAccepted","at":1794846040.7965465,"token":"2.1"}');
INSERT INTO "journal" VALUES(19,1.79484604085097241405e+09,'event','ComponentReady',2,'a','anna','{"event":"ComponentReady","at":1794846040.8509724,"token":"2.1"}');
INSERT INTO "journal" VALUES(20,1.79484604085097241405e+09,'command','ReleaseBarrier',2,NULL,'anna','{"command":"ReleaseBarrier","job":2,"tokens":["2.1"]}');
INSERT INTO "journal" VALUES(21,1.79484604100734257696e+09,'event','ComponentEnded',2,'a','anna','{"event":"ComponentEnded","at":1794846041.0073426,"token":"2.1","outcome":"failed","reason":"exit code 3","exit_code":3}');
INSERT INTO "journal" VALUES(22,1.79484604100734257696e+09,'command','JobEnded',2,NULL,'anna','{"command":"JobEnded","job":2,"outcome":"failed","reason":"component 0 failed on a with exit code 3, and it may not be restarted","submitted_at":1794846040.7910113,"placed_at":1794846040.7910113,"started_at":1794846040.8509724,"ended_at":1794846041.0073426,"first_start_estimate":1794846040.7910113,"last_start_estimate":1794846040.7910113,"places":[["a",1]],"placement_tries":1,"claiming_tries":1,"runs":1,"failures":1,"preemptions":0}');
INSERT INTO "journal" VALUES(23,1.79484604103797411919e+09,'event','JobSubmitted',3,NULL,'anna','{"event":"JobSubmitted","at":1794846041.037974,"job":3,"request":{"components":[{"processors":1,"application":{"script":"#!/bin/sh\n# a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; \nexit 0\n"},"input_files":[{"name":"data/é"}],"site":"b"},{"processors":1,"application":{"script":"#!/bin/sh\n# a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; \nexit 0\n"},"input_files":[{"name":"data/é"}],"site":"b"}],"name":"with a file"}}');
INSERT INTO "journal" VALUES(24,1.79484604103797411919e+09,'command','StartTransfer',3,'b','anna','{"command":"StartTransfer","transfer":"t1","file":"data/é","source":"a","target":"b","size_bytes":2000}');
INSERT INTO "journal" VALUES(25,1.79484604103797411919e+09,'command','JobPlaced',3,NULL,'anna','{"command":"JobPlaced","job":3,"places":[["b",1],["b",1]]}');
INSERT INTO "journal" VALUES(26,1.7948460410808374882e+09,'event','Tick',NULL,NULL,NULL,'{"event":"Tick","at":1794846041.0808375}');
INSERT INTO "journal" VALUES(27,1.7948460410808374882e+09,'command','StartComponent',3,'b','anna','{"command":"StartComponent","job":3,"token":"3.1","site":"b","processors":1,"component":0,"part":0,"parts":2,"begin_at":1794846041.038994,"barrier_timeout_s":680.0}');
INSERT INTO "journal" VALUES(28,1.7948460410808374882e+09,'command','StartComponent',3,'b','anna','{"command":"StartComponent","job":3,"token":"3.2","site":"b","processors":1,"component":1,"part":1,"parts":2,"begin_at":1794846041.038994,"barrier_timeout_s":680.0}');
INSERT INTO "journal" VALUES(29,1.79484604110573077199e+09,'event','ComponentAccepted',3,'b','anna','{"event":"ComponentAccepted","at":1794846041.1057308,"token":"3.1"}');
INSERT INTO "journal" VALUES(30,1.79484604111331224446e+09,'event','TransferEnded',3,'b','anna','{"event":"TransferEnded","at":1794846041.1133122,"transfer":"t1","ok":true}');
INSERT INTO "journal" VALUES(31,1.79484604114507222171e+09,'event','ComponentAccepted',3,'b','anna','{"event":"ComponentAccepted","at":1794846041.1450722,"token":"3.2"}');
INSERT INTO "journal" VALUES(32,1794846041.20568,'event','ComponentReady',3,'b','anna','{"event":"ComponentReady","at":1794846041.20568,"token":"3.1"}');
INSERT INTO "journal" VALUES(33,1.79484604125901508328e+09,'event','ComponentReady',3,'b','anna','{"event":"ComponentReady","at":1794846041.259015,"token":"3.2"}');
INSERT INTO "journal" VALUES(34,1.79484604125901508328e+09,'command','ReleaseBarrier',3,NULL,'anna','{"command":"ReleaseBarrier","job":3,"tokens":["3.1","3.2"],"inputs":[[{"file":"data/é","transfer":"t1"}],[{"file":"data/é","transfer":"t1"}]]}');
INSERT INTO "journal" VALUES(35,1.79484604147652959823e+09,'event','ComponentEnded',3,'b','anna','{"event":"ComponentEnded","at":1794846041.4765296,"token":"3.1","outcome":"done","exit_code":0}');
INSERT INTO "journal" VALUES(36,1.79484604147934770582e+09,'event','ComponentEnded',3,'b','anna','{"event":"ComponentEnded","at":1794846041.4793477,"token":"3.2","outcome":"done","exit_code":0}');
INSERT INTO "journal" VALUES(37,1.79484604147934770582e+09,'command','CancelTransfer',3,'b','anna','{"command":"CancelTransfer","transfer":"t1"}');
INSERT INTO "journal" VALUES(38,1.79484604147934770582e+09,'command','JobEnded',3,NULL,'anna','{"command":"JobEnded","job":3,"outcome":"done","reason":"","submitted_at":1794846041.037974,"placed_at":1794846041.037974,"started_at":1794846041.259015,"ended_at":1794846041.4793477,"first_start_estimate":1794846041.038994,"last_start_estimate":1794846041.038994,"places":[["b",1],["b",1]],"placement_tries":1,"claiming_tries":1,"runs":1,"failures":0,"preemptions":0}');
INSERT INTO "journal" VALUES(39,1.79484604170460557938e+09,'event','Tick',NULL,NULL,NULL,'{"event":"Tick","at":1794846041.7046056}');
INSERT INTO "journal" VALUES(40,1.79484604170464468004e+09,'event','JobSubmitted',4,NULL,'anna','{"event":"JobSubmitted","at":1794846041.7046447,"job":4,"request":{"components":[{"processors":2,"application":{"script":"sleep 600"},"site":"a"}],"name":"running"}}');
INSERT INTO "journal" VALUES(41,1.79484604170464468004e+09,'command','JobPlaced',4,NULL,'anna','{"command":"JobPlaced","job":4,"places":[["a",2]]}');
INSERT INTO "journal" VALUES(42,1.79484604170464468004e+09,'command','StartComponent',4,'a','anna','{"command":"StartComponent","job":4,"token":"4.1","site":"a","processors":2,"component":0,"part":0,"parts":1,"begin_at":1794846041.7046447,"barrier_timeout_s":620.0}');
INSERT INTO "journal" VALUES(43,1.79484604178117275238e+09,'event','ComponentAccepted',4,'a','anna','{"event":"ComponentAccepted","at":1794846041.7811728,"token":"4.1"}');
INSERT INTO "journal" VALUES(44,1.79484604183676099775e+09,'event','ComponentReady',4,'a','anna','{"event":"ComponentReady","at":1794846041.836761,"token":"4.1"}');
INSERT INTO "journal" VALUES(45,1.79484604183676099775e+09,'command','ReleaseBarrier',4,NULL,'anna','{"command":"ReleaseBarrier","job":4,"tokens":["4.1"]}');
INSERT INTO "journal" VALUES(46,1.79484604185219883917e+09,'event','JobSubmitted',5,NULL,'anna','{"event":"JobSubmitted","at":1794846041.8521988,"job":5,"request":{"components":[{"processors":1,"application":{"script":"sleep 600 # xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},"site":"b"},{"processors":1,"application":{"script":"sleep 600 # xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},"site":"b"}],"name":"two components"}}');
INSERT INTO "journal" VALUES(47,1.79484604185219883917e+09,'command','JobPlaced',5,NULL,'anna','{"command":"JobPlaced","job":5,"places":[["b",1],["b",1]]}');
INSERT INTO "journal" VALUES(48,1.79484604185219883917e+09,'command','StartComponent',5,'b','anna','{"command":"StartComponent","job":5,"token":"5.1","site":"b","processors":1,"component":0,"part":0,"parts":2,"begin_at":1794846041.8521988,"barrier_timeout_s":620.0}');
INSERT INTO "journal" VALUES(49,1.79484604185219883917e+09,'command','StartComponent',5,'b','anna','{"command":"StartComponent","job":5,"token":"5.2","site":"b","processors":1,"component":1,"part":1,"parts":2,"begin_at":1794846041.8521988,"barrier_timeout_s":620.0}');
INSERT INTO "journal" VALUES(50,1.79484604186211299894e+09,'event','ComponentAccepted',5,'b','anna','{"event":"ComponentAccepted","at":1794846041.862113,"token":"5.1"}');
INSERT INTO "journal" VALUES(51,1.79484604190268158909e+09,'event','ComponentAccepted',5,'b','anna','{"event":"ComponentAccepted","at":1794846041.9026816,"token":"5.2"}');
INSERT INTO "journal" VALUES(52,1.79484604195744252208e+09,'event','ComponentReady',5,'b','anna','{"event":"ComponentReady","at":1794846041.9574425,"token":"5.1"}');
INSERT INTO "journal" VALUES(53,1.79484604200906753537e+09,'event','ComponentReady',5,'b','anna','{"event":"ComponentReady","at":1794846042.0090675,"token":"5.2"}');
INSERT INTO "journal" VALUES(54,1.79484604200906753537e+09,'command','ReleaseBarrier',5,NULL,'anna','{"command":"ReleaseBarrier","job":5,"tokens":["5.1","5.2"]}');
INSERT INTO "journal" VALUES(55,1.79484604202703118321e+09,'event','JobSubmitted',6,NULL,'anna','{"event":"JobSubmitted","at":1794846042.0270312,"job":6,"request":{"components":[{"processors":2,"application":{"script":"#!/bin/sh\n# a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; \nexit 0\n"}}],"name":"waiting"}}');
INSERT INTO "journal" VALUES(56,1.79484604202955770491e+09,'event','JobSubmitted',7,NULL,'anna','{"event":"JobSubmitted","at":1794846042.0295577,"job":7,"request":{"components":[{"processors":2,"application":{"script":"exit 0"}}],"name":"cancelled"}}');
INSERT INTO "journal" VALUES(57,1.79484604204387855532e+09,'event','JobSubmitted',8,NULL,'anna','{"event":"JobSubmitted","at":1794846042.0438786,"job":8,"request":{"components":[{"processors":1,"application":{"script":"echo later yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"}},{"processors":1,"application":{"script":"echo later yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"}}],"name":"after the snapshot","priority":"high"}}');
INSERT INTO "journal" VALUES(58,1.79484604205932712561e+09,'event','CancelAsked',7,NULL,'anna','{"event":"CancelAsked","at":1794846042.0593271,"job":7}');
INSERT INTO "journal" VALUES(59,1.79484604205932712561e+09,'command','JobEnded',7,NULL,'anna','{"command":"JobEnded","job":7,"outcome":"cancelled","reason":"cancelled","submitted_at":1794846042.0295577,"placed_at":null,"started_at":null,"ended_at":1794846042.0593271,"first_start_estimate":null,"last_start_estimate":null,"places":[],"placement_tries":1,"claiming_tries":0,"runs":0,"failures":0,"preemptions":0}');
CREATE TABLE koala_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT koala_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "koala_schema" VALUES('0002');
CREATE TABLE outbox (
	seq INTEGER NOT NULL, 
	CONSTRAINT pk_outbox PRIMARY KEY (seq), 
	CONSTRAINT fk_outbox_seq FOREIGN KEY(seq) REFERENCES journal (seq)
);
CREATE TABLE requests (
	"key" TEXT NOT NULL, 
	body TEXT NOT NULL, 
	CONSTRAINT pk_requests PRIMARY KEY ("key")
);
INSERT INTO "requests" VALUES('17f5cfc78309423a12dad2f8e8f380aa5ff1423ddb8ac5187e51fbfbbb41080d','{"components":[{"processors":1,"application":{"script":"#!/bin/sh\n# a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; \nexit 0\n"}},{"processors":1,"application":{"script":"#!/bin/sh\n# a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; \nexit 0\n"}}],"name":"done é漢😀 back\\slash"}');
INSERT INTO "requests" VALUES('7305c91719c05cc1bf1f97e6c8dce68dcaa3b3b766ab14881ef6ba7782a8201d','{"components":[{"processors":1,"application":{"script":"exit 3"}}],"name":"failed","restarts_max":0}');
INSERT INTO "requests" VALUES('f1c7dc712522f1c0cebc1a63493d62ba7e8aa577cff9c093c572600b59a965e9','{"components":[{"processors":1,"application":{"script":"#!/bin/sh\n# a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; \nexit 0\n"},"input_files":[{"name":"data/é"}],"site":"b"},{"processors":1,"application":{"script":"#!/bin/sh\n# a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; \nexit 0\n"},"input_files":[{"name":"data/é"}],"site":"b"}],"name":"with a file"}');
INSERT INTO "requests" VALUES('d4752081bbc7d6eec84ee9b227182cac40051f19102c0b1c4890b86300551c1d','{"components":[{"processors":2,"application":{"script":"sleep 600"},"site":"a"}],"name":"running"}');
INSERT INTO "requests" VALUES('7e7d7dfc60f689abac7b36889e35ea80c1bd81d03b9b6d4963c1f817ef82eaf9','{"components":[{"processors":1,"application":{"script":"sleep 600 # xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},"site":"b"},{"processors":1,"application":{"script":"sleep 600 # xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},"site":"b"}],"name":"two components"}');
INSERT INTO "requests" VALUES('e1a18a8a4f276a66d294345f841643a9c2631e7018c5420a2b1149692cc8983e','{"components":[{"processors":2,"application":{"script":"#!/bin/sh\n# a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; \nexit 0\n"}}],"name":"waiting"}');
INSERT INTO "requests" VALUES('a4d3b4e5990458267b5ce726ef6ebd4971ad8cbf9765e47f50f8c5b22511e0b0','{"components":[{"processors":2,"application":{"script":"exit 0"}}],"name":"cancelled"}');
INSERT INTO "requests" VALUES('81a6d405dddc458b18be2908a4bfd5fc761bf5c4a3e739e9d29e7ecbee77072c','{"components":[{"processors":1,"application":{"script":"echo later yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"}},{"processors":1,"application":{"script":"echo later yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"}}],"name":"after the snapshot","priority":"high"}');
CREATE TABLE snapshot (
	id INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	CONSTRAINT pk_snapshot PRIMARY KEY (id)
);
INSERT INTO "snapshot" VALUES(1,56,'{"grid":{"sites":[{"name":"a","processors":2,"kind":"local","quota":1.0,"file_server":null,"uplink_mbit_s":null,"man":null,"wan":null,"nodes":[],"node_power":1000.0,"node_load":0.0,"batch":null,"simulation":{"local_scheduler":"first_fit","background":null,"faults":{"component_failure":0.0,"application_failure":0.0,"outages":[],"mean_time_between_outages_s":null,"outage_mean_s":600.0},"startup":null}},{"name":"b","processors":2,"kind":"local","quota":1.0,"file_server":null,"uplink_mbit_s":null,"man":null,"wan":null,"nodes":[],"node_power":1000.0,"node_load":0.0,"batch":null,"simulation":{"local_scheduler":"first_fit","background":null,"faults":{"component_failure":0.0,"application_failure":0.0,"outages":[],"mean_time_between_outages_s":null,"outage_mean_s":600.0},"startup":null}}],"name":"grid","links":{"default":{"bandwidth_mbit_s":800.0,"latency_s":0.001},"pairs":[]},"network":null,"files":[],"scheduler":{"policy":"WF","scan_interval_s":0.0,"high_scans_per_low_scan":2,"claim_fraction":0.75,"claim_fraction_step":0.125,"claim_fraction_min":0.25,"claim_threshold":0.0,"error_threshold":5,"cooldown_s":600.0,"barrier_timeout_s":300.0,"queue_patience_s":5.0,"answer_timeout_s":20.0,"check_interval_s":5.0,"transfer_tries_max":3,"transfer_patience":10.0,"hold_placed":false,"placement_tries_max":null,"claiming_tries_max":null,"restarts_max":10},"simulation":{"startup":{"base_s":0.0,"per_component_s":0.0,"load_factor":0.0,"jitter":0.0},"answers":{"late":0.0,"late_mean_s":60.0,"twice":0.0,"never":0.0,"transfer_break":0.0},"report_interval_s":0.0,"heal_at_s":null}},"core":{"version":2,"grid":"9866c062aa04ad5fe6b197aedb786867a682dd71db205948a37a3ebe12180daa","now":1794846042.0295577,"last_job":7,"helped":6,"changed":14,"scans_so_far":[0,1],"claiming_sequence":1,"transfers_started":1,"observations":0,"observed_bisection_bit_s":0.0,"sites":[{"name":"a","processors":2,"reported":false,"others":0,"trust":"usable","drained":false,"errors":0,"probe_job":null,"waiters":{}},{"name":"b","processors":2,"reported":false,"others":0,"trust":"usable","drained":false,"errors":0,"probe_job":null,"waiters":{}}],"queues":[{"high":true,"scan_due_at":null,"scanned_helped":0,"scanned_changed":0,"passed_changed":0,"next_position":0,"untried":false,"scans":0,"seen":[]},{"high":false,"scan_due_at":null,"scanned_helped":6,"scanned_changed":14,"passed_changed":14,"next_position":2,"untried":false,"scans":1,"seen":[[-1,[[0,0],[]]]]}],"jobs":[{"id":4,"submitted_at":1794846041.7046447,"waiting_since":1794846041.7046447,"claim_fraction":0.75,"state":"running","ended_at":null,"story":[[1794846041.7046447,"placed",[0],[2],0.0],[1794846041.7046447,"claimed"],[1794846041.836761,"started"]],"position":-1,"entered_scan":0,"joined_after_scan":0,"exhausted_at_scan":null,"placement_tries":1,"refused":null,"spots":[[0],[2],[]],"places":[["a",2]],"placed_at":1794846041.7046447,"started_at":1794846041.836761,"start_estimate":1794846041.7046447,"first_start_estimate":1794846041.7046447,"earmarks":{},"needs":[],"observed":false,"ready":1,"outstanding":1,"deadline":1794846341.7046447,"claim_at":0.0,"claim_sequence":0,"claim_resumed":false,"rests":0,"claiming_tries":1,"claiming_tries_in_row":0,"runs":1,"starts":1,"failures":0,"application_failures":0,"preemptions":0,"barred":{}},{"id":5,"submitted_at":1794846041.8521988,"waiting_since":1794846041.8521988,"claim_fraction":0.75,"state":"running","ended_at":null,"story":[[1794846041.8521988,"placed",[1,1],[1,1],0.0],[1794846041.8521988,"claimed"],[1794846042.0090675,"started"]],"position":-1,"entered_scan":0,"joined_after_scan":0,"exhausted_at_scan":null,"placement_tries":1,"refused":null,"spots":[[1,1],[1,1],[]],"places":[["b",1],["b",1]],"placed_at":1794846041.8521988,"started_at":1794846042.0090675,"start_estimate":1794846041.8521988,"first_start_estimate":1794846041.8521988,"earmarks":{},"needs":[],"observed":false,"ready":2,"outstanding":2,"deadline":1794846341.8521988,"claim_at":0.0,"claim_sequence":0,"claim_resumed":false,"rests":0,"claiming_tries":1,"claiming_tries_in_row":0,"runs":1,"starts":2,"failures":0,"application_failures":0,"preemptions":0,"barred":{}},{"id":6,"submitted_at":1794846042.0270312,"waiting_since":1794846042.0270312,"claim_fraction":0.75,"state":"waiting","ended_at":null,"story":[[1794846042.0270312,"refused"]],"position":0,"entered_scan":0,"joined_after_scan":0,"exhausted_at_scan":null,"placement_tries":1,"refused":[[0,0],[]],"spots":null,"places":[],"placed_at":null,"started_at":null,"start_estimate":null,"first_start_estimate":null,"earmarks":{},"needs":[],"observed":false,"ready":0,"outstanding":0,"deadline":0.0,"claim_at":0.0,"claim_sequence":0,"claim_resumed":false,"rests":0,"claiming_tries":0,"claiming_tries_in_row":0,"runs":0,"starts":0,"failures":0,"application_failures":0,"preemptions":0,"barred":{}},{"id":7,"submitted_at":1794846042.0295577,"waiting_since":1794846042.0295577,"claim_fraction":0.75,"state":"waiting","ended_at":null,"story":[[1794846042.0295577,"refused"]],"position":1,"entered_scan":1,"joined_after_scan":1,"exhausted_at_scan":null,"placement_tries":1,"refused":[[0,0],[]],"spots":null,"places":[],"placed_at":null,"started_at":null,"start_estimate":null,"first_start_estimate":null,"earmarks":{},"needs":[],"observed":false,"ready":0,"outstanding":0,"deadline":0.0,"claim_at":0.0,"claim_sequence":0,"claim_resumed":false,"rests":0,"claiming_tries":0,"claiming_tries_in_row":0,"runs":0,"starts":0,"failures":0,"application_failures":0,"preemptions":0,"barred":{}}],"claims":[{"token":"4.1","job_id":4,"component":0,"site":0,"processors":2,"phase":3,"moved":false,"given_up":false,"aborting":false,"abort_tries":0},{"token":"5.1","job_id":5,"component":0,"site":1,"processors":1,"phase":3,"moved":false,"given_up":false,"aborting":false,"abort_tries":0},{"token":"5.2","job_id":5,"component":1,"site":1,"processors":1,"phase":3,"moved":false,"given_up":false,"aborting":false,"abort_tries":0}],"transfers":[],"timers":[[1794846046.836761,"look_after",4],[1794846047.0090675,"look_after",5]],"links":[[0,1,100000000.0,70008071.22856748]],"files":{"data/é":[2000,[0]]},"requests":[{"components":[{"processors":2,"application":{"script":"sleep 600"},"site":"a"}],"name":"running"},{"components":[{"processors":1,"application":{"script":"sleep 600 # xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},"site":"b"},{"processors":1,"application":{"script":"sleep 600 # xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},"site":"b"}],"name":"two components"},{"components":[{"processors":2,"application":{"script":"#!/bin/sh\n# a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; a long comment é漢😀 with a back\\slash and \"quotes\"; \nexit 0\n"}}],"name":"waiting"},{"components":[{"processors":2,"application":{"script":"exit 0"}}],"name":"cancelled"}]}}');
CREATE TABLE tokens (
	id TEXT NOT NULL, 
	user TEXT NOT NULL, 
	scopes TEXT NOT NULL, 
	note TEXT NOT NULL, 
	secret_hash TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	used_at DOUBLE, 
	revoked_at DOUBLE, 
	CONSTRAINT pk_tokens PRIMARY KEY (id)
);
INSERT INTO "tokens" VALUES('k1','anna','["read"]','laptop é \udc80\u0000\\','0000000000000000000000000000000000000000000000000000000000000000',5.0,NULL,NULL);
CREATE TABLE transfer_jobs (
	job INTEGER NOT NULL, 
	transfer TEXT NOT NULL, 
	CONSTRAINT pk_transfer_jobs PRIMARY KEY (job, transfer), 
	CONSTRAINT fk_transfer_jobs_transfer FOREIGN KEY(transfer) REFERENCES transfers (id)
);
INSERT INTO "transfer_jobs" VALUES(3,'t1');
CREATE TABLE transfers (
	id TEXT NOT NULL, 
	file TEXT NOT NULL, 
	source TEXT NOT NULL, 
	target TEXT NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	chunk TEXT, 
	started_at DOUBLE NOT NULL, 
	ended_at DOUBLE, 
	ok BOOLEAN, 
	reason TEXT NOT NULL, 
	jobs TEXT NOT NULL, 
	CONSTRAINT pk_transfers PRIMARY KEY (id)
);
INSERT INTO "transfers" VALUES('t1','data/é','a','b',2000,NULL,1.79484604103797411919e+09,1.79484604111331224446e+09,1,'','[3]');
CREATE UNIQUE INDEX ix_jobs_owner_client_token ON jobs (owner, client_token);
CREATE INDEX ix_jobs_owner_id ON jobs (owner, id);
CREATE INDEX ix_jobs_owner_state_id ON jobs (owner, state, id);
CREATE INDEX ix_jobs_state_id ON jobs (state, id);
CREATE INDEX ix_components_job ON components (job);
CREATE INDEX ix_components_pruned_ended_at ON components (pruned, ended_at);
CREATE INDEX ix_components_site_ended_at ON components (site, ended_at);
CREATE INDEX ix_files_head ON files (head);
CREATE INDEX ix_journal_owner_seq ON journal (owner, seq);
CREATE INDEX ix_journal_job_seq ON journal (job, seq) WHERE job IS NOT NULL;
CREATE INDEX ix_journal_site_at ON journal (site, at) WHERE what = 'SiteReported';
CREATE UNIQUE INDEX ix_tokens_secret_hash ON tokens (secret_hash);
COMMIT;
