// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=32KB --split-size=16KB --remarks=missed 2>&1 | filecheck %s

// The rows' maxima are taken before the loop, which asks what is equal to them. Recomputed in the loop, in other tiles, a
// row might have no element that is. The loop's condition reads something of all rows, so it is not cut from outside.

// CHECK: %[[WHOLE:.*]] = stablehlo.divide {{.*}} : tensor<256x200xf32>
// CHECK: stablehlo.reduce(%[[WHOLE]] init: %{{.*}}) applies stablehlo.maximum
// CHECK: stablehlo.while
// CHECK-NOT: stablehlo.divide
// CHECK: remark: 256x200xf32 (205KB) not split: {{.*}}while

func.func @main(%a: tensor<256x37xf32>, %b: tensor<200x37xf32>, %start: tensor<200xf32>) -> (tensor<200xf32>, tensor<256xf32>, tensor<256xf32>) {
  %d = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<256x37xf32>, tensor<200x37xf32>) -> tensor<256x200xf32>
  %r = stablehlo.slice %a [0:256, 0:1] : (tensor<256x37xf32>) -> tensor<256x1xf32>
  %r1 = stablehlo.reshape %r : (tensor<256x1xf32>) -> tensor<256xf32>
  %r2 = stablehlo.abs %r1 : tensor<256xf32>
  %rb = stablehlo.broadcast_in_dim %r2, dims = [0] : (tensor<256xf32>) -> tensor<256x200xf32>
  %e = stablehlo.exponential %d : tensor<256x200xf32>
  %0 = stablehlo.divide %e, %rb : tensor<256x200xf32>
  %ninf = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.reduce(%0 init: %ninf) applies stablehlo.maximum across dimensions = [1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<256xf32>
  %inf = stablehlo.constant dense<0x7F800000> : tensor<f32>
  %i0 = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last = stablehlo.constant dense<3> : tensor<i32>
  %f1 = stablehlo.constant dense<1.0> : tensor<256x200xf32>
  %f0 = stablehlo.constant dense<0.0> : tensor<256x200xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %loop:3 = stablehlo.while(%i = %i0, %v = %start, %acc = %m) : tensor<i32>, tensor<200xf32>, tensor<256xf32>
    cond {
      %least = stablehlo.reduce(%acc init: %inf) applies stablehlo.minimum across dimensions = [0] : (tensor<256xf32>, tensor<f32>) -> tensor<f32>
      %some = stablehlo.compare GT, %least, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %early = stablehlo.compare LT, %i, %last : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %go = stablehlo.and %early, %some : tensor<i1>
      stablehlo.return %go : tensor<i1>
    } do {
      %next = stablehlo.add %i, %one : tensor<i32>
      %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<256xf32>) -> tensor<256x200xf32>
      %eq = stablehlo.compare EQ, %0, %mb : (tensor<256x200xf32>, tensor<256x200xf32>) -> tensor<256x200xi1>
      %mask = stablehlo.select %eq, %f1, %f0 : tensor<256x200xi1>, tensor<256x200xf32>
      %cnt = stablehlo.reduce(%mask init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<256x200xf32>, tensor<f32>) -> tensor<256xf32>
      %2 = stablehlo.dot_general %cnt, %mask, contracting_dims = [0] x [0] : (tensor<256xf32>, tensor<256x200xf32>) -> tensor<200xf32>
      %5 = stablehlo.add %v, %2 : tensor<200xf32>
      stablehlo.return %next, %5, %cnt : tensor<i32>, tensor<200xf32>, tensor<256xf32>
    }
  return %loop#1, %loop#2, %m : tensor<200xf32>, tensor<256xf32>, tensor<256xf32>
}
